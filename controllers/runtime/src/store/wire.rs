//! What an API server writes of a list or a watch: pages, events, and the fields that every object has.

use bytes::BytesMut;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::Cached;
use crate::client::ApiError;
use crate::client::or_default;

/// One line of a watch.
pub(super) struct WatchEvent<'a> {
    pub(super) kind: &'a str,
    pub(super) object: &'a str,
}

impl<'a> WatchEvent<'a> {
    /// Every API server writes an event as `{"type":"…","object":{…}}`: then the object, which may be long, is parsed
    /// only once, by the decoder. Any other formatting is parsed here.
    pub(super) fn read(line: &'a [u8]) -> Result<Self, serde_json::Error> {
        let usual = || {
            let text = std::str::from_utf8(line).ok()?.trim_end();
            let (kind, rest) = text.strip_prefix(r#"{"type":""#)?.split_once('"')?;
            let object = rest.strip_prefix(r#","object":"#)?.strip_suffix('}')?;
            Some(Self { kind, object })
        };
        if let Some(event) = usual() {
            return Ok(event);
        }
        let event: AnyEvent<'a> = serde_json::from_slice(line)?;
        Ok(Self { kind: event.kind, object: event.object.get() })
    }
}

#[derive(Deserialize)]
struct AnyEvent<'a> {
    #[serde(rename = "type")]
    kind: &'a str,
    #[serde(borrow)]
    object: &'a RawValue,
}

#[derive(Deserialize)]
pub(super) struct Code {
    #[serde(default)]
    pub(super) code: u16,
}

#[derive(Deserialize, Default)]
pub(super) struct Object<'a> {
    #[serde(borrow, default, deserialize_with = "or_default")]
    pub(super) metadata: Meta<'a>,
}

impl<'a> Object<'a> {
    pub(super) fn read(json: &'a str) -> Self {
        serde_json::from_str(json).unwrap_or_default()
    }
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Meta<'a> {
    #[serde(deserialize_with = "or_default")]
    pub(super) namespace: &'a str,
    pub(super) name: &'a str,
    pub(super) resource_version: &'a str,
    #[serde(borrow, deserialize_with = "or_default")]
    pub(super) annotations: BookmarkAnnotations<'a>,
}

impl Meta<'_> {
    /// The key of an object whose other fields may be unreadable. Without the key, the store can't know which object it
    /// lacks.
    pub(super) fn key<T: Cached>(&self) -> Result<T::Key, ApiError> {
        let nameless = || ApiError::Decode(format!("an object of {} has no name", T::NAME));
        Some(self.name).filter(|name| !name.is_empty()).map(|name| T::key_of(self.namespace, name)).ok_or_else(nameless)
    }
}

#[derive(Deserialize, Default)]
pub(super) struct BookmarkAnnotations<'a> {
    #[serde(rename = "k8s.io/initial-events-end", borrow, default)]
    pub(super) initial_events_end: Option<&'a str>,
}

#[derive(Deserialize)]
pub(super) struct Page<'a> {
    #[serde(borrow)]
    pub(super) metadata: ListMeta<'a>,
    #[serde(borrow, deserialize_with = "or_default")]
    pub(super) items: Vec<&'a RawValue>,
}

impl<'a> Page<'a> {
    pub(super) fn read(json: &'a [u8]) -> Result<Self, ApiError> {
        serde_json::from_slice(json).map_err(|error| ApiError::Decode(error.to_string()))
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ListMeta<'a> {
    pub(super) resource_version: &'a str,
    #[serde(rename = "continue")]
    pub(super) next: Option<&'a str>,
}

/// Cuts a stream of frames into lines.
#[derive(Default)]
pub(super) struct Lines {
    buffer: BytesMut,
    searched: usize,
}

impl Lines {
    pub(super) fn push(&mut self, frame: &[u8]) {
        self.buffer.extend_from_slice(frame);
    }

    pub(super) fn next(&mut self) -> Option<BytesMut> {
        let rest = self.buffer.get(self.searched..)?;
        match memchr::memchr(b'\n', rest) {
            Some(at) => {
                let line = self.buffer.split_to(self.searched + at + 1);
                self.searched = 0;
                Some(line)
            }
            None => {
                self.searched = self.buffer.len();
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_read_however_they_are_written() {
        let usual = WatchEvent::read(b"{\"type\":\"ADDED\",\"object\":{\"a\":{}}}\n").unwrap();
        assert_eq!((usual.kind, usual.object), ("ADDED", "{\"a\":{}}"));
        let other = WatchEvent::read(b"{ \"object\": {\"a\": 1}, \"type\": \"DELETED\" }\n").unwrap();
        assert_eq!((other.kind, other.object), ("DELETED", "{\"a\": 1}"));
        assert!(WatchEvent::read(b"<html>").is_err());
    }

    #[test]
    fn null_is_an_empty_list_and_an_answer_without_items_is_none() {
        let page = Page::read(br#"{"metadata": {"resourceVersion": "7"}, "items": null}"#).unwrap();
        assert_eq!((page.items.len(), page.metadata.resource_version), (0, "7"));
        assert!(Page::read(br#"{"metadata": {"resourceVersion": "7"}}"#).is_err());
        let metadata = Object::read(r#"{"metadata": {"namespace": null, "name": "n", "annotations": null}}"#).metadata;
        assert_eq!((metadata.namespace, metadata.name), ("", "n"));
    }

    #[test]
    fn lines_are_found_across_frames() {
        let mut lines = Lines::default();
        let mut found = Vec::new();
        for frame in ["{\"a\"", ":1}\n{\"b\":", "2}\n", "{}\n{", "}\n"] {
            lines.push(frame.as_bytes());
            while let Some(line) = lines.next() {
                found.push(String::from_utf8(line.to_vec()).unwrap());
            }
        }
        assert_eq!(found, ["{\"a\":1}\n", "{\"b\":2}\n", "{}\n", "{}\n"]);
    }
}
