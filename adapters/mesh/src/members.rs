//! What the registry says of the mesh: where each peer's is, and which key is whose.
//!
//! Invariant: a key is accepted from nobody but the one current member that lists it.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::RwLock;
use serde_json::{Value, json};
use switchboard_core::membership::Membership;
use switchboard_core::ports::Member;
use switchboard_core::types::Identity;

use crate::key::Fingerprint;
use crate::links::Target;

/// The key of a registry row's `meta` that says how to reach the row's node by mesh.
pub const META_KEY: &str = "mesh";

/// What a node lists under [`META_KEY`].
pub(crate) fn describe(key: &Fingerprint) -> Value {
    json!({ "key": key.to_string() })
}

/// A view of the cluster as the mesh needs it.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct View {
    /// Those with a mesh.
    pub(crate) targets: Vec<Target>,
    /// Whether there are peers without one.
    pub(crate) others: Vec<Identity>,
}

impl View {
    pub(crate) fn of(membership: &Membership) -> Self {
        let mut view = Self::default();
        for member in membership.peers() {
            match key_of(member) {
                Some(key) => view.targets.push(Target {
                    identity: member.identity.clone(),
                    endpoint: member.endpoint.clone(),
                    key,
                }),
                None => view.others.push(member.identity.clone()),
            }
        }
        view
    }
}

fn key_of(member: &Member) -> Option<Fingerprint> {
    Fingerprint::parse(member.meta.0.get(META_KEY)?.get("key")?.as_str()?)
}

/// Whose key is whose, for the handshakes under way. Clones share it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Trusted(Arc<RwLock<HashMap<Fingerprint, Option<Identity>>>>);

impl Trusted {
    pub(crate) fn replace(&self, targets: &[Target]) {
        let mut keys = HashMap::new();
        for target in targets {
            // A key that two rows list proves neither.
            keys.entry(target.key)
                .and_modify(|owner| *owner = None)
                .or_insert_with(|| Some(target.identity.clone()));
        }
        *self.0.write() = keys;
    }

    /// Whose key it is.
    pub(crate) fn owner(&self, key: &Fingerprint) -> Option<Identity> {
        self.0.read().get(key).cloned().flatten()
    }
}
