//! Known differences of the real services from the simulation.

use super::{Deviation, differs};

pub(crate) const OF_OPENSTACK: &[Deviation] = &[
    differs(
        "identity: a login with a password",
        &["identity POST /auth/tokens: has.token.roles[].*"],
        "roles of trusts show more than others; nobody reads it",
    ),
    differs(
        "network: tags of subnets",
        &["network PUT /subnets/11111111-*"],
        "Neutron 29 answers an internal error for tags of what there is not; 404 is what it documents",
    ),
    differs(
        "floating IP: a life",
        &["network POST /floatingips: says \"FloatingIPPortAlreadyAssociated *"],
        "the text names the address that the refused floating IP would have had",
    ),
    differs("security group*", &["network *: has.security_group*standard_attr_id number"], "a number of its database"),
    differs(
        "security group: a life",
        &["network GET /security-groups?name=sg: *belongs_to_default_sg *"],
        "null in lists of groups alone, false everywhere else",
    ),
    differs("*", &["*Value should be one of: *"], "Octavia prints a set, whose order is another after each start"),
    differs("listener: what is refused", &["*'81x'*"], "Octavia prints the whole body"),
    differs(
        "listener: what is refused",
        &["*allowed_cidrs*"],
        "Octavia prints the whole list, the simulation the entry that is wrong",
    ),
    differs(
        "pool: a life",
        &["load-balancer POST /pools: says \"Validation failure: The pool protocol 'None'*"],
        "Octavia compares the protocols before it misses one",
    ),
    differs("members: in one request", &["*Value not a valid list*"], "Octavia prints the whole body"),
];
