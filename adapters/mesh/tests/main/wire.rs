//! A UDP relay in front of a node, which can be cut, and made to lose: some of what passes, or all that is large in one direction.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use parking_lot::Mutex;
use switchboard_core::types::Endpoint;
use tokio::net::UdpSocket;
use tokio::task::JoinSet;

/// Every datagram is lost.
const ALL: u32 = 1000;

/// What becomes of datagrams.
#[derive(Default)]
struct Trouble {
    /// So many of a thousand are lost.
    lost: AtomicU32,
    /// Large ones are lost on the way to the node, and on the way back.
    swallows: [AtomicBool; 2],
}

impl Trouble {
    fn befalls(&self, datagram: &[u8], way: Way) -> bool {
        let swallowed = datagram.len() >= LARGE && self.swallows[way as usize].load(Ordering::Relaxed);
        swallowed || rand::random_range(0..ALL) < self.lost.load(Ordering::Relaxed)
    }
}

/// Bytes of a datagram from which on it is large. None that fills the smallest packets of QUIC passes.
const LARGE: usize = 1100;

/// Seen from the one who dials.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Way {
    There,
    Back,
}

/// The relay. Dropping it ends it.
pub(crate) struct Wire {
    address: SocketAddr,
    trouble: Arc<Trouble>,
    _tasks: JoinSet<()>,
}

impl Wire {
    /// In front of `target`.
    pub(crate) async fn to(target: SocketAddr) -> Self {
        let front = Arc::new(UdpSocket::bind("127.0.0.1:0").await.unwrap());
        let (address, trouble) = (front.local_addr().unwrap(), Arc::<Trouble>::default());
        let mut tasks = JoinSet::new();
        tasks.spawn(relay(front, target, Arc::clone(&trouble)));
        Self { address, trouble, _tasks: tasks }
    }

    pub(crate) fn endpoint(&self) -> Endpoint {
        Endpoint::from_ip(self.address.ip(), self.address.port()).unwrap()
    }

    /// So many of a thousand datagrams are lost from now on.
    pub(crate) fn lose(&self, per_thousand: u32) {
        self.trouble.lost.store(per_thousand, Ordering::Relaxed);
    }

    pub(crate) fn cut(&self) {
        self.lose(ALL);
    }

    /// Whether large datagrams are lost that go this way.
    pub(crate) fn swallow_large(&self, way: Way, swallow: bool) {
        self.trouble.swallows[way as usize].store(swallow, Ordering::Relaxed);
    }

    pub(crate) fn heal(&self) {
        self.lose(0);
    }
}

async fn relay(front: Arc<UdpSocket>, target: SocketAddr, trouble: Arc<Trouble>) {
    let backs: Mutex<HashMap<SocketAddr, Arc<UdpSocket>>> = Mutex::default();
    let (mut ways_back, mut datagram) = (JoinSet::new(), vec![0; 65_536]);
    loop {
        // The system reports here what became of earlier datagrams.
        let Ok((length, from)) = front.recv_from(&mut datagram).await else { continue };
        if trouble.befalls(&datagram[..length], Way::There) {
            continue;
        }
        let known = backs.lock().get(&from).cloned();
        let back = if let Some(back) = known {
            back
        } else {
            let back = Arc::new(UdpSocket::bind("127.0.0.1:0").await.unwrap());
            back.connect(target).await.unwrap();
            backs.lock().insert(from, Arc::clone(&back));
            ways_back.spawn(way_back(Arc::clone(&back), Arc::clone(&front), from, Arc::clone(&trouble)));
            back
        };
        let _ = back.send(&datagram[..length]).await;
    }
}

async fn way_back(back: Arc<UdpSocket>, front: Arc<UdpSocket>, to: SocketAddr, trouble: Arc<Trouble>) {
    let mut datagram = vec![0; 65_536];
    loop {
        if let Ok(length) = back.recv(&mut datagram).await
            && !trouble.befalls(&datagram[..length], Way::Back)
        {
            let _ = front.send_to(&datagram[..length], to).await;
        }
    }
}
