//! Collects what is wrong with a node's dependencies: a registry of named checks that any adapter can add to.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;

type Check = Arc<dyn Fn() -> Condition + Send + Sync>;

/// What a check finds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Condition {
    /// Works.
    Ok,
    /// Works, but somebody should look: the reason, as a clause for people. Does not make a node unready.
    Degraded(String),
    /// Does not work: the reason, as a clause for people. The node should get no new work.
    Failed(String),
}

/// Named checks, read whenever somebody asks for the node's health. Clones share the same checks.
///
/// A check answers from what its owner already knows: it must not block and must not ask the dependency.
#[derive(Clone, Default)]
pub struct HealthRegistry {
    checks: Arc<Mutex<BTreeMap<&'static str, Check>>>,
}

impl HealthRegistry {
    /// Adds the check `name`, or replaces it.
    pub fn check(&self, name: &'static str, find: impl Fn() -> Condition + Send + Sync + 'static) {
        self.checks.lock().insert(name, Arc::new(find));
    }

    /// Runs every check, in the order of names.
    pub fn report(&self) -> Vec<(&'static str, Condition)> {
        let checks = self.checks.lock().clone();
        checks.into_iter().map(|(name, find)| (name, find())).collect()
    }
}

impl std::fmt::Debug for HealthRegistry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.checks.lock().keys()).finish()
    }
}
