//! Lists of the API server, read page by page.

use ccm_runtime::Client;
use ccm_runtime::client::{ApiError, Call};
use serde::Deserialize;
use serde::de::DeserializeOwned;

/// Objects per page.
const PAGE: usize = 250;

/// A complete list.
pub(super) async fn all<T: DeserializeOwned>(client: &Client, path: &str) -> Result<Vec<T>, ApiError> {
    let mut items = Vec::new();
    each(client, path, |item| items.push(item)).await?;
    Ok(items)
}

#[derive(Deserialize)]
#[serde(bound = "T: DeserializeOwned")]
struct Page<T> {
    #[serde(default)]
    metadata: PageMeta,
    #[serde(default = "Vec::new")]
    items: Vec<T>,
}

#[derive(Default, Deserialize)]
struct PageMeta {
    #[serde(rename = "continue", default)]
    next: String,
}

/// Passes each object of a list to a function without keeping it. The path may have a query with selectors.
pub(super) async fn each<T: DeserializeOwned>(
    client: &Client,
    path: &str,
    mut look: impl FnMut(T),
) -> Result<(), ApiError> {
    let and = if path.contains('?') { '&' } else { '?' };
    let mut next = String::new();
    loop {
        let more = if next.is_empty() { String::new() } else { format!("&continue={next}") };
        let page: Page<T> = client.read(&Call::get(format!("{path}{and}limit={PAGE}{more}"))).await?;
        page.items.into_iter().for_each(&mut look);
        next = page.metadata.next.replace('+', "%2B").replace('=', "%3D").replace('/', "%2F");
        if next.is_empty() {
            return Ok(());
        }
    }
}
