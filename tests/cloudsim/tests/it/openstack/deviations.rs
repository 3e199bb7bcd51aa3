//! Where the real services are known to differ from the simulation, and why that stays: pattern (`*` for anything) and reason.

pub(crate) const KNOWN: &[(&str, &str)] = &[
    (
        "identity: a login with a password: identity POST /auth/tokens: has.token.roles[].*",
        "roles of trusts show more than others; nobody reads it",
    ),
    ("compute: versions: compute GET /: has.version.links[].type string", "a link to the documents"),
    (
        "network: tags of subnets: network PUT /subnets/11111111-*",
        "Neutron 29 answers an internal error for tags of what there is not; 404 is what it documents",
    ),
    (
        "floating IP: a life: network POST /floatingips: says \"FloatingIPPortAlreadyAssociated *",
        "the text names the address that the refused floating IP would have had",
    ),
    ("security group*: network *: has.security_group*standard_attr_id number", "a number of its database"),
    (
        "security group: a life: network GET /security-groups?name=sg: *belongs_to_default_sg *",
        "null in lists of groups alone, false everywhere else",
    ),
    ("*Value should be one of: *", "Octavia prints a set, whose order is another after each start"),
    ("listener: what is refused: *'81x'*", "Octavia prints the whole body"),
    (
        "listener: what is refused: *allowed_cidrs*",
        "Octavia prints the whole list, the simulation the entry that is wrong",
    ),
    (
        "pool: a life: load-balancer POST /pools: says \"Validation failure: The pool protocol 'None'*",
        "Octavia compares the protocols before it misses one",
    ),
    ("members: in one request: *Value not a valid list*", "Octavia prints the whole body"),
];
