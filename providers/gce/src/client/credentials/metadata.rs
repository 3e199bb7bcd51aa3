//! The token of the instance's default service account.

use async_trait::async_trait;
use ccm_kit::call::Failure;

use super::{Answer, SCOPE, Source, Token};
use crate::client::metadata::Metadata;

/// The metadata server as a source of tokens.
#[derive(Debug)]
pub(crate) struct Instance(pub(crate) Metadata);

#[async_trait]
impl Source for Instance {
    async fn fetch(&self) -> Result<Token, Failure> {
        let path = format!("instance/service-accounts/default/token?scopes={SCOPE}");
        self.0.answer(&path).await?.json::<Answer>()?.token()
    }
}
