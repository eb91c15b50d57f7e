//! Who is there, in the words of Phoenix' `Presence`, which both client libraries share.
//!
//! Invariant: `phx_ref` and `phx_ref_prev` are the server's. They stand after whatever the client tracked, so that its parser keeps ours.

use serde::ser::{Error as _, SerializeMap};
use serde::{Serialize, Serializer};
use serde_json::value::RawValue;
use switchboard_core::types::Payload;

/// Everything that is tracked under one key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PresenceEntry {
    /// The key: usually a user.
    pub key: String,
    /// One meta for each socket that tracks the key.
    pub metas: Vec<PresenceMeta>,
}

/// What one socket tracks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PresenceMeta {
    /// Identifies the meta (`phx_ref`); a new one with every update.
    pub reference: String,
    /// The reference that it replaced, if it is an update (`phx_ref_prev`).
    pub previous: Option<String>,
    /// What was tracked: a JSON object.
    pub meta: Payload,
}

/// `{"joins": …, "leaves": …}`.
#[derive(Debug, Serialize)]
pub(crate) struct Diff {
    joins: Entries<Vec<PresenceEntry>>,
    leaves: Entries<Vec<PresenceEntry>>,
}

impl Diff {
    pub(crate) fn new(joins: &[PresenceEntry], leaves: &[PresenceEntry]) -> Self {
        Self { joins: Entries(joins.to_vec()), leaves: Entries(leaves.to_vec()) }
    }
}

/// `{key: {"metas": […]}, …}`.
#[derive(Debug)]
pub(crate) struct Entries<T>(pub(crate) T);

impl<T: AsRef<[PresenceEntry]>> Serialize for Entries<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Metas<'a> {
            metas: &'a [PresenceMeta],
        }
        let entries = self.0.as_ref();
        let mut map = serializer.serialize_map(Some(entries.len()))?;
        for PresenceEntry { key, metas } in entries {
            map.serialize_entry(key, &Metas { metas })?;
        }
        map.end()
    }
}

impl Serialize for PresenceMeta {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Refs<'a> {
            phx_ref: &'a str,
            #[serde(skip_serializing_if = "Option::is_none")]
            phx_ref_prev: Option<&'a str>,
        }
        let refs = Refs { phx_ref: &self.reference, phx_ref_prev: self.previous.as_deref() };
        let refs = serde_json::to_string(&refs).map_err(S::Error::custom)?;
        let object = match object_members(&self.meta) {
            Some("") | None => refs,
            Some(members) => format!("{{{members},{}", &refs[1..]),
        };
        RawValue::from_string(object).map_err(S::Error::custom)?.serialize(serializer)
    }
}

/// What stands between the braces of a JSON object; `None` if it is none.
pub(crate) fn object_members(payload: &Payload) -> Option<&str> {
    Some(payload.as_str().strip_prefix('{')?.strip_suffix('}')?.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meta(meta: &str) -> String {
        let meta = PresenceMeta {
            reference: "r2".into(),
            previous: Some("r1".into()),
            meta: Payload::parse(meta).unwrap(),
        };
        serde_json::to_string(&meta).unwrap()
    }

    #[test]
    fn a_meta_keeps_its_text_and_gains_its_refs() {
        assert_eq!(
            meta(r#"{"n":9007199254740993, "n":1}"#),
            r#"{"n":9007199254740993, "n":1,"phx_ref":"r2","phx_ref_prev":"r1"}"#
        );
        assert_eq!(meta("{ }"), r#"{"phx_ref":"r2","phx_ref_prev":"r1"}"#);
    }

    #[test]
    fn a_client_cannot_choose_its_ref() {
        let parsed: serde_json::Value = serde_json::from_str(&meta(r#"{"phx_ref":"stolen"}"#)).unwrap();
        assert_eq!(parsed["phx_ref"], "r2");
    }
}
