//! The conformance suite on the in-memory server.

use crate::api::Api;
use crate::cases;
use ccm_test_apiserver::{ApiServer, Options};

macro_rules! tests {
    ($($module:ident: $case:ident,)*) => {
        $(
            #[tokio::test]
            async fn $case() {
                let server = ApiServer::start(Options::default()).await.unwrap();
                cases::$module::$case(&Api::new(&server.url(), "any", None, stringify!($case))).await;
                server.stop().await;
            }
        )*
    };
}

crate::conformance!(tests);
