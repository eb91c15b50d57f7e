//! The view of the cluster from one node. Pure.
//!
//! Invariant: a node never lists itself as a peer and counts itself exactly once, whatever the registry's table says
//! (it may be missing there, or its id may be held by a successor).

use std::collections::HashMap;

use crate::ports::Member;
use crate::types::{Identity, NodeId};

/// Who this node believes to be in the cluster.
#[derive(Debug, Clone, PartialEq)]
pub struct Membership {
    me: Identity,
    peers: Vec<Member>,
    has_joined: bool,
}

impl Membership {
    /// The view of a node that knows nobody yet.
    pub fn alone(me: Identity) -> Self {
        Self { me, peers: Vec::new(), has_joined: false }
    }

    /// The view that a read of the registry gives; `members` in the registry's order.
    pub fn new(me: Identity, mut members: Vec<Member>) -> Self {
        members.retain(|member| member.identity.node_id != me.node_id);
        Self { me, peers: members, has_joined: true }
    }

    /// This node.
    pub fn me(&self) -> &Identity {
        &self.me
    }

    /// Everybody else, in the registry's order.
    pub fn peers(&self) -> &[Member] {
        &self.peers
    }

    /// Whether the registry has told who is there; until then nobody is known.
    pub fn has_joined(&self) -> bool {
        self.has_joined
    }

    /// Number of nodes, this one included.
    pub fn size(&self) -> usize {
        self.peers.len() + 1
    }

    /// What happened between `earlier` and this view, departures first.
    pub fn changes_since(&self, earlier: &Self) -> Vec<MembershipChange> {
        let now = by_id(&self.peers);
        let before = by_id(&earlier.peers);
        let left = earlier.peers.iter().filter(|was| !now.contains_key(&was.identity.node_id));
        let came = self.peers.iter().filter_map(|member| match before.get(&member.identity.node_id) {
            None => Some(MembershipChange::Joined(member.clone())),
            Some(was) if was.identity == member.identity => None,
            Some(was) => Some(MembershipChange::Restarted { was: (*was).clone(), now: member.clone() }),
        });
        left.cloned().map(MembershipChange::Left).chain(came).collect()
    }
}

fn by_id(members: &[Member]) -> HashMap<&NodeId, &Member> {
    members.iter().map(|member| (&member.identity.node_id, member)).collect()
}

/// One change of membership. This node itself never appears in one.
#[derive(Debug, Clone, PartialEq)]
pub enum MembershipChange {
    /// A node id that was not there before.
    Joined(Member),
    /// The same node id under a new incarnation, perhaps at a new endpoint: the old process is gone for good.
    Restarted {
        /// The last that was known of the old process.
        was: Member,
        /// The new process.
        now: Member,
    },
    /// A node id that is gone: it left, or was swept.
    Left(Member),
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use time::OffsetDateTime;

    use super::*;
    use crate::types::{Incarnation, Stats};

    fn member(node_id: &str, incarnation: u128) -> Member {
        Member {
            identity: Identity {
                node_id: NodeId::parse(node_id).unwrap(),
                incarnation: Incarnation::from_bits(incarnation),
            },
            endpoint: "127.0.0.1:1".parse().unwrap(),
            seq: 1,
            registered_at: OffsetDateTime::UNIX_EPOCH,
            heartbeat: OffsetDateTime::UNIX_EPOCH,
            age: Duration::ZERO,
            stats: Stats::default(),
            meta: Stats::default(),
        }
    }

    fn view(members: &[Member]) -> Membership {
        Membership::new(member("me", 0).identity, members.to_vec())
    }

    #[test]
    fn a_node_is_never_its_own_peer_and_counts_once() {
        for rows in
            [vec![], vec![member("me", 0)], vec![member("me", 9)], vec![member("me", 0), member("me", 9)]]
        {
            assert_eq!(view(&rows).size(), 1);
            assert!(view(&rows).peers().is_empty());
        }
    }

    #[test]
    fn changes_name_joins_restarts_and_departures() {
        let before = view(&[member("me", 0), member("a", 1), member("b", 1)]);
        let after = view(&[member("b", 2), member("c", 1)]);
        assert_eq!(
            after.changes_since(&before),
            [
                MembershipChange::Left(member("a", 1)),
                MembershipChange::Restarted { was: member("b", 1), now: member("b", 2) },
                MembershipChange::Joined(member("c", 1)),
            ]
        );
        assert_eq!(after.changes_since(&after), []);
    }
}
