//! A UDP relay in front of a node, which can be cut, and made to lose.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use parking_lot::Mutex;
use switchboard_core::types::Endpoint;
use tokio::net::UdpSocket;
use tokio::task::JoinSet;

/// Every datagram is lost.
const ALL: u32 = 1000;

/// The relay. Dropping it ends it.
pub(crate) struct Wire {
    address: SocketAddr,
    lost: Arc<AtomicU32>,
    _tasks: JoinSet<()>,
}

impl Wire {
    /// In front of `target`.
    pub(crate) async fn to(target: SocketAddr) -> Self {
        let front = Arc::new(UdpSocket::bind("127.0.0.1:0").await.unwrap());
        let (address, lost) = (front.local_addr().unwrap(), Arc::new(AtomicU32::new(0)));
        let mut tasks = JoinSet::new();
        tasks.spawn(relay(front, target, Arc::clone(&lost)));
        Self { address, lost, _tasks: tasks }
    }

    pub(crate) fn endpoint(&self) -> Endpoint {
        Endpoint::from_ip(self.address.ip(), self.address.port()).unwrap()
    }

    /// So many of a thousand datagrams are lost from now on.
    pub(crate) fn lose(&self, per_thousand: u32) {
        self.lost.store(per_thousand, Ordering::Relaxed);
    }

    pub(crate) fn cut(&self) {
        self.lose(ALL);
    }

    pub(crate) fn heal(&self) {
        self.lose(0);
    }
}

async fn relay(front: Arc<UdpSocket>, target: SocketAddr, lost: Arc<AtomicU32>) {
    let backs: Mutex<HashMap<SocketAddr, Arc<UdpSocket>>> = Mutex::default();
    let (mut ways_back, mut datagram) = (JoinSet::new(), vec![0; 65_536]);
    loop {
        // The system reports here what became of earlier datagrams.
        let Ok((length, from)) = front.recv_from(&mut datagram).await else { continue };
        if is_lost(&lost) {
            continue;
        }
        let known = backs.lock().get(&from).cloned();
        let back = if let Some(back) = known {
            back
        } else {
            let back = Arc::new(UdpSocket::bind("127.0.0.1:0").await.unwrap());
            back.connect(target).await.unwrap();
            backs.lock().insert(from, Arc::clone(&back));
            ways_back.spawn(way_back(Arc::clone(&back), Arc::clone(&front), from, Arc::clone(&lost)));
            back
        };
        let _ = back.send(&datagram[..length]).await;
    }
}

async fn way_back(back: Arc<UdpSocket>, front: Arc<UdpSocket>, to: SocketAddr, lost: Arc<AtomicU32>) {
    let mut datagram = vec![0; 65_536];
    loop {
        if let Ok(length) = back.recv(&mut datagram).await
            && !is_lost(&lost)
        {
            let _ = front.send_to(&datagram[..length], to).await;
        }
    }
}

fn is_lost(lost: &AtomicU32) -> bool {
    rand::random_range(0..ALL) < lost.load(Ordering::Relaxed)
}
