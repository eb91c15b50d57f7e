//! One node of Switchboard, as it is released, with tokens and with its defaults but for the rates that bound one client:
//! here all clients are one program.

use std::env;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::Command;
use std::thread;
use std::time::Duration;

use switchboard_embedded_postgres::free_port;

use super::process::Process;

const SECRET: &str = "the secret of a load program, which is none";

/// A server that clients connect to.
pub(crate) struct Server {
    pub(crate) process: Process,
    pub(crate) address: SocketAddr,
    /// What clients show to it.
    pub(crate) token: String,
}

/// The binary, built if it is not there or not fresh.
pub(crate) fn build() -> PathBuf {
    let cargo = env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let mut build = Command::new(cargo);
    build.args(["build", "--release", "--locked", "--package", "switchboard"]);
    // What Cargo tells us about ourselves is about nobody else: build scripts that look at it would run again each time.
    for (name, _) in env::vars_os() {
        if ["CARGO_MANIFEST_", "CARGO_PKG_"].iter().any(|ours| name.to_string_lossy().starts_with(ours)) {
            build.env_remove(name);
        }
    }
    let built = build.status();
    assert!(built.is_ok_and(|status| status.success()), "switchboard cannot be built");
    // We are in `target/release/deps`.
    let own = env::current_exe().expect("we are a file");
    own.ancestors().nth(2).expect("Cargo has built us").join("switchboard")
}

pub(crate) fn start(binary: &PathBuf, database: &str) -> Server {
    let token = Command::new(binary)
        .args(["token", "--sub", "load", "--channel", "*=subscribe,publish"])
        .env("AUTH_JWT_SECRET", SECRET)
        .output()
        .expect("it can be started");
    let token = String::from_utf8(token.stdout).expect("a token is text").trim().to_owned();
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()));
    let mut command = Command::new(binary);
    command.args(["serve", "--exit-with-stdin"]).envs([
        ("DATABASE_URL", database),
        ("HTTP_ADDR", &address.to_string()),
        ("AUTH_JWT_SECRET", SECRET),
        ("WS_OPEN_RATE", "100000"),
        ("WS_MESSAGE_RATE", "100000"),
        ("LOG_LEVEL", "warn"),
    ]);
    let server = Server { process: Process::start(&mut command), address, token };
    while !is_ready(address) {
        thread::sleep(Duration::from_millis(50));
    }
    server
}

fn is_ready(address: SocketAddr) -> bool {
    let ask = || {
        let mut stream = TcpStream::connect(address)?;
        stream.write_all(b"GET /readyz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok::<_, std::io::Error>(answer)
    };
    ask().is_ok_and(|answer| answer.starts_with("HTTP/1.1 200"))
}
