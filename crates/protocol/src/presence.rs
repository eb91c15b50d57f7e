//! Who is there, in the words of Phoenix' `Presence`, which both client libraries share.
//!
//! Invariant: `phx_ref` and `phx_ref_prev` are the server's: what a client tracks under these names is left out.

use std::borrow::Cow;
use std::fmt;

use serde::de::{MapAccess, Visitor};
use serde::ser::{Error as _, SerializeMap};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;
use serde_json::value::RawValue;
use switchboard_core::types::Payload;

use crate::codec::Text;
use crate::session::{Reason, Refusal};

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

/// What a client tracks, without what is the server's to say in it: clients send back metas that they were shown.
pub(crate) fn meta(tracked: &str) -> Result<Payload, Refusal> {
    let not_an_object = |_| Refusal::new(Reason::BadPayload, "what is tracked must be an object");
    let Members(members) = serde_json::from_str(tracked).map_err(not_an_object)?;
    if !members.iter().any(|(name, _)| is_ref(name)) {
        return Ok(Payload::parse(tracked)?);
    }
    let kept = members.into_iter().filter(|(name, _)| !is_ref(name));
    Ok(Payload::parse(&Members(kept.collect()).to_json())?)
}

fn is_ref(name: &str) -> bool {
    matches!(name, "phx_ref" | "phx_ref_prev")
}

/// The members of an object, each as the text that it was.
struct Members<'a>(Vec<(Cow<'a, str>, &'a RawValue)>);

impl Members<'_> {
    fn to_json(&self) -> String {
        let members = self.0.iter().map(|(name, value)| format!("{}:{value}", Value::from(&**name)));
        format!("{{{}}}", members.collect::<Vec<_>>().join(","))
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Members<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Each;

        impl<'de> Visitor<'de> for Each {
            type Value = Members<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut members = Vec::new();
                while let Some((Text(name), value)) = map.next_entry::<Text<'de>, &'de RawValue>()? {
                    members.push((name, value));
                }
                Ok(Members(members))
            }
        }

        deserializer.deserialize_map(Each)
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
        for (tracked, kept) in [
            (r#"{"phx_ref":"stolen"}"#, "{}"),
            (
                r#"{"phx\u005fref":"stolen", "n":9007199254740993 ,"phx_ref_prev":{},"e\u0301":[1, 2]}"#,
                "{\"n\":9007199254740993,\"e\u{301}\":[1, 2]}",
            ),
            (r#"{ "n": 1, "deep": {"phx_ref": 1}}"#, r#"{ "n": 1, "deep": {"phx_ref": 1}}"#),
        ] {
            assert_eq!(super::meta(tracked).unwrap().as_str(), kept);
        }
        for bad in ["[]", "1", "null", r#""{}""#, r#"[["a",1]]"#] {
            assert_eq!(super::meta(bad).unwrap_err().reason(), Reason::BadPayload, "{bad}");
        }
    }
}
