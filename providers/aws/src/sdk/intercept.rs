//! Checks and counts every HTTP answer.

use aws_smithy_runtime_api::box_error::BoxError;
use aws_smithy_runtime_api::client::interceptors::Intercept;
use aws_smithy_runtime_api::client::interceptors::context::AfterDeserializationInterceptorContextRef;
use aws_smithy_runtime_api::client::orchestrator::Metadata;
use aws_smithy_runtime_api::client::runtime_components::RuntimeComponents;
use aws_smithy_types::config_bag::ConfigBag;

use crate::client::metrics::Metrics;

/// Counts answers with an error status, and refuses truncated documents: the SDK would read those up to their end,
/// and a list would be incomplete without an error.
#[derive(Debug)]
pub(super) struct Answers(pub(super) Metrics);

#[aws_smithy_runtime_api::client::interceptors::dyn_dispatch_hint]
impl Intercept for Answers {
    fn name(&self) -> &'static str {
        "Answers"
    }

    fn read_after_deserialization(
        &self,
        context: &AfterDeserializationInterceptorContextRef<'_>,
        _: &RuntimeComponents,
        cfg: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        let response = context.response();
        let status = response.status().as_u16();
        if let Some(operation) = cfg.load::<Metadata>() {
            self.0.response(operation.service(), operation.name(), status);
        }
        let whole = response.body().bytes().is_none_or(is_whole);
        if status < 300 && !whole { Err("the answer breaks off, or is not an XML document".into()) } else { Ok(()) }
    }
}

/// Whether a document ends with the end tag of its root element. Some answers have no body.
fn is_whole(document: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(document) else { return false };
    let mut text = text.trim();
    if text.is_empty() {
        return true;
    }
    while let Some(prolog) = text.strip_prefix("<?").or_else(|| text.strip_prefix("<!")) {
        let Some((_, rest)) = prolog.split_once('>') else { return false };
        text = rest.trim_start();
    }
    let name = |from: &str| {
        from.find(|c: char| c.is_whitespace() || c == '>' || c == '/').map(|end| from.split_at(end).0.to_owned())
    };
    let Some(root) = text.strip_prefix('<').and_then(name) else { return false };
    let Some(end) = text.strip_suffix('>') else { return false };
    match end.rsplit_once('<') {
        Some((_, last)) => {
            last.strip_prefix('/').is_some_and(|last| last.trim_end() == root)
                || (text.matches('<').count() == 1 && end.ends_with('/'))
        }
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::is_whole;

    #[test]
    fn only_a_document_with_its_end_is_whole() {
        for whole in [
            "",
            "<A><B/></A>",
            "<?xml version=\"1.0\"?>\n<A xmlns=\"x\">\n<B>1</B></A >\n",
            "<A/>",
            "<!-- x --><A></A>",
        ] {
            assert!(is_whole(whole.as_bytes()), "{whole}");
        }
        for cut in [
            "<A><B/>",
            "<A><B></B>",
            "<A",
            "<A><B>1</B></A",
            "<A>text",
            "<?xml",
            "{}",
            "<html><body></html",
            "<A><A></B>",
        ] {
            assert!(!is_whole(cut.as_bytes()), "{cut}");
        }
    }
}
