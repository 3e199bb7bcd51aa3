//! Load balancers: one plan for all Services of a load balancer and its security group.
