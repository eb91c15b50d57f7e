//! The proxy does to connections what its modes say, and nothing else.

use std::io::ErrorKind;
use std::time::Duration;

use switchboard_testkit::proxy::{Mode, Proxy};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, timeout};

/// Long enough for anything that happens on a loopback interface, short enough to wait for what does not.
const MOMENT: Duration = Duration::from_millis(200);

const LONG: Duration = Duration::from_secs(10);

/// A proxy, and both ends of connections through it.
struct Line {
    proxy: Proxy,
    listener: TcpListener,
}

impl Line {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        Self { proxy: Proxy::start(listener.local_addr().unwrap()).await, listener }
    }

    /// A client and what serves it.
    async fn connect(&self) -> (TcpStream, TcpStream) {
        let client = TcpStream::connect(self.proxy.address()).await.unwrap();
        let (server, _) = timeout(LONG, self.listener.accept()).await.unwrap().unwrap();
        (client, server)
    }
}

async fn says(speaker: &mut TcpStream, text: &str) {
    speaker.write_all(text.as_bytes()).await.unwrap();
}

async fn hears(listener: &mut TcpStream, text: &str) {
    let mut heard = vec![0; text.len()];
    timeout(LONG, listener.read_exact(&mut heard)).await.expect("hears nothing").unwrap();
    assert_eq!(String::from_utf8(heard).unwrap(), text);
}

async fn hears_nothing(listener: &mut TcpStream) {
    let heard = timeout(MOMENT, listener.read_u8()).await;
    assert!(heard.is_err(), "{heard:?}");
}

/// The end of the stream; an error that is not one is answered with its kind.
async fn end(listener: &mut TcpStream) -> Result<usize, ErrorKind> {
    timeout(LONG, listener.read(&mut [0])).await.expect("no end").map_err(|error| error.kind())
}

#[tokio::test]
async fn it_forwards_both_ways_and_lets_one_side_finish_first() {
    let line = Line::start().await;
    let (mut client, mut server) = line.connect().await;
    says(&mut client, "question").await;
    hears(&mut server, "question").await;
    client.shutdown().await.unwrap();
    assert_eq!(end(&mut server).await, Ok(0));
    says(&mut server, "answer").await;
    hears(&mut client, "answer").await;
    drop(server);
    assert_eq!(end(&mut client).await, Ok(0));
}

#[tokio::test]
async fn a_cut_is_an_orderly_end_and_new_connections_go_through() {
    let line = Line::start().await;
    let (mut client, mut server) = line.connect().await;
    says(&mut client, "x").await;
    hears(&mut server, "x").await;
    line.proxy.cut();
    assert_eq!(end(&mut client).await, Ok(0));
    assert_eq!(end(&mut server).await, Ok(0));
    let (mut client, mut server) = line.connect().await;
    says(&mut client, "y").await;
    hears(&mut server, "y").await;
}

#[tokio::test]
async fn a_reset_is_an_error_on_both_sides() {
    let line = Line::start().await;
    let (mut client, mut server) = line.connect().await;
    says(&mut client, "x").await;
    hears(&mut server, "x").await;
    line.proxy.reset();
    assert_eq!(end(&mut client).await, Err(ErrorKind::ConnectionReset));
    assert_eq!(end(&mut server).await, Err(ErrorKind::ConnectionReset));
}

#[tokio::test]
async fn a_black_hole_swallows_both_directions_until_it_ends() {
    let line = Line::start().await;
    let (mut client, mut server) = line.connect().await;
    line.proxy.set(Mode::Stall);
    says(&mut client, "question").await;
    says(&mut server, "answer").await;
    hears_nothing(&mut server).await;
    hears_nothing(&mut client).await;
    line.proxy.set(Mode::Forward);
    hears(&mut server, "question").await;
    hears(&mut client, "answer").await;
}

/// What leaves a server with a session whose client is long gone.
#[tokio::test]
async fn a_black_hole_swallows_the_end_of_a_connection_too() {
    let line = Line::start().await;
    let (client, mut server) = line.connect().await;
    line.proxy.set(Mode::Stall);
    drop(client);
    hears_nothing(&mut server).await;
    line.proxy.set(Mode::Forward);
    assert_eq!(end(&mut server).await, Ok(0));
}

#[tokio::test]
async fn one_direction_alone_can_be_stalled() {
    let line = Line::start().await;
    let (mut client, mut server) = line.connect().await;
    line.proxy.set(Mode::StallAnswers);
    says(&mut client, "question").await;
    hears(&mut server, "question").await;
    says(&mut server, "answer").await;
    hears_nothing(&mut client).await;

    line.proxy.set(Mode::StallRequests);
    hears(&mut client, "answer").await;
    says(&mut client, "thanks").await;
    hears_nothing(&mut server).await;
    says(&mut server, "more").await;
    hears(&mut client, "more").await;
}

#[tokio::test]
async fn new_connections_are_refused_while_open_ones_go_on() {
    let line = Line::start().await;
    let (mut client, mut server) = line.connect().await;
    line.proxy.set(Mode::Refuse);
    let refused = match TcpStream::connect(line.proxy.address()).await {
        Ok(mut stream) => end(&mut stream).await,
        Err(error) => Err(error.kind()),
    };
    assert_eq!(refused, Err(ErrorKind::ConnectionReset));
    says(&mut client, "x").await;
    hears(&mut server, "x").await;
    line.proxy.set(Mode::Forward);
    line.connect().await;
}

#[tokio::test]
async fn each_piece_is_delayed_in_each_direction() {
    let line = Line::start().await;
    let (mut client, mut server) = line.connect().await;
    line.proxy.set(Mode::Delay(MOMENT));
    let asked = Instant::now();
    says(&mut client, "question").await;
    hears(&mut server, "question").await;
    says(&mut server, "answer").await;
    hears(&mut client, "answer").await;
    assert!(asked.elapsed() >= MOMENT * 2, "{:?}", asked.elapsed());
}

#[tokio::test]
async fn dropping_the_proxy_ends_its_connections() {
    let line = Line::start().await;
    let (mut client, mut server) = line.connect().await;
    drop(line);
    assert_eq!(end(&mut client).await, Ok(0));
    assert_eq!(end(&mut server).await, Ok(0));
}
