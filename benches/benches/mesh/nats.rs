//! A `nats-server` with its defaults, on loopback.

use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use switchboard_embedded_postgres::free_port;

use super::process::Process;

/// `None` if there is none to be started. Debian keeps it where only root looks.
pub(crate) fn start() -> Option<(Process, String)> {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()));
    let program = ["nats-server", "/usr/sbin/nats-server"].into_iter().find(|program| {
        let asked = Command::new(program).arg("--version").stdout(Stdio::null()).status();
        asked.is_ok_and(|status| status.success())
    })?;
    let mut command = Command::new(program);
    command.args(["-a", "127.0.0.1", "-p", &address.port().to_string()]).stderr(Stdio::null());
    let server = Process::start(&mut command);
    while TcpStream::connect(address).is_err() {
        thread::sleep(Duration::from_millis(10));
    }
    Some((server, format!("nats://{address}")))
}
