//! Load balancers for Services.

mod budgets;
mod crash;
mod errors;
mod groups;
mod inspect;
mod life;
mod lives;
mod measure;
mod recorded;
mod scene;
mod shared_vpc;
mod takeover;
