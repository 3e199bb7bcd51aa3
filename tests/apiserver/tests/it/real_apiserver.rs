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
