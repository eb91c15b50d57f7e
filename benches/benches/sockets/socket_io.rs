//! A Socket.IO server of `benches/compare/socket-io`, whose packages are installed as its lock file names them.

use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::{Command, Stdio};

use super::node::Server;
use super::process::Process;

pub(crate) fn start() -> Server {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("compare/socket-io");
    if !directory.join("node_modules").exists() {
        let npm =
            Command::new("npm").args(["ci", "--no-audit", "--no-fund"]).current_dir(&directory).status();
        assert!(npm.is_ok_and(|status| status.success()), "the comparison needs Node.js and npm");
    }
    let mut command = Command::new("node");
    command.arg("server.js").env("NODE_ENV", "production").current_dir(&directory).stdout(Stdio::piped());
    let mut process = Process::start(&mut command);
    let mut port = String::new();
    let output = process.0.stdout.take().expect("it is piped");
    BufReader::new(output).read_line(&mut port).expect("it says where it listens");
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port.trim().parse().expect("a port")));
    Server { process, address, token: String::new() }
}
