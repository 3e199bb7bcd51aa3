//! The conformance suite on a real kube-apiserver: where it fails, the suite (and the in-memory server) is wrong.

use crate::api::Api;
use crate::cases;

macro_rules! tests {
    ($($module:ident: $case:ident,)*) => {
        $(
            #[tokio::test]
            async fn $case() {
                // Without one, the bed says so on stderr, and fails where that must not be.
                let Some(bed) = ccm_test_bed::Bed::shared().await.unwrap() else { return };
                let api = Api::new(&bed.url, &bed.token, Some(&bed.ca_pem), stringify!($case));
                cases::$module::$case(&api).await;
            }
        )*
    };
}

crate::conformance!(tests);

#[tokio::test]
async fn a_server_without_the_feature_refuses_streaming_lists() {
    let options = ccm_test_bed::Options::default().apiserver_arg("--feature-gates=WatchList=false");
    let Some(bed) = ccm_test_bed::Bed::start_with(options).await.unwrap() else { return };
    crate::faults::streaming_lists_are_forbidden(&Api::new(&bed.url, &bed.token, Some(&bed.ca_pem), "f")).await;
}
