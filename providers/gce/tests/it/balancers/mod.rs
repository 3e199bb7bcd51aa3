//! Load balancers for Services.

mod alone;
mod bad_input;
mod budgets;
mod crash;
mod errors;
mod groups;
mod inspect;
mod lag;
mod life;
mod lives;
mod measure;
mod members;
mod oddities;
mod parts;
mod permissions;
mod recorded;
mod replaced;
mod reservations;
mod scene;
mod shared_vpc;
mod switched;
mod unanswered;
