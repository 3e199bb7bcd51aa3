use crate::case::{Case, case};

pub(crate) fn cases() -> Vec<Case> {
    const ROLE: &str = "RoleArn=arn:aws:iam::123456789012:role/ccm&RoleSessionName=test";
    vec![
        case("sts: a role is assumed")
            .ok("sts:AssumeRole", ROLE)
            .like("Credentials/AccessKeyId", "ASIA*")
            .like("Credentials/Expiration", "20*")
            .is("AssumedRoleUser/Arn", "arn:aws:sts::123456789012:assumed-role/ccm/test"),
        case("sts: a role is assumed for a while")
            .ok("sts:AssumeRole", format!("{ROLE}&DurationSeconds=900"))
            .like("Credentials/SessionToken", "*"),
        case("sts: a web identity")
            .ok("sts:AssumeRoleWithWebIdentity", format!("{ROLE}&WebIdentityToken=abcd"))
            .like("Credentials/AccessKeyId", "ASIA*")
            .is("AssumedRoleUser/Arn", "arn:aws:sts::123456789012:assumed-role/ccm/test"),
    ]
}
