//! `switchboard top` in a terminal, and piped into something that reads lines.

use std::process::Stdio;
use std::sync::{Arc, Mutex};

use switchboard_testkit::process::Process;
use switchboard_testkit::{LONG, available, eventually, on_path};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, ChildStdin, Command};
use tokio::time::timeout;

use crate::node::{Cluster, Node, TOKEN, binary};

/// Asked for, and given back: xterm's other screen.
const ENTERED: &str = "\x1b[?1049h";
const LEFT: &str = "\x1b[?1049l";

/// A terminal with `top` in it, and somebody at the keyboard.
struct Terminal {
    child: Child,
    keyboard: ChildStdin,
    shown: Arc<Mutex<String>>,
}

impl Terminal {
    /// `script` (of util-linux) makes the terminal; the shell in it says at the end how `top` ended and whether the terminal is as before.
    fn open(node: &Node) -> Self {
        let inside = format!(
            "stty rows 30 cols 160; before=$(stty -g); sh -c 'echo pid=$$.; exec {} top --interval 100ms'; code=$?; \
             [ \"$before\" = \"$(stty -g)\" ] && echo restored; echo ended with $code",
            binary().display()
        );
        let mut command = Command::new("script");
        command.args(["--quiet", "--flush", "--command", &inside, "/dev/null"]);
        command.env("SHELL", "/bin/sh").env("TERM", "xterm-256color");
        command.env("SWITCHBOARD_URL", &node.url).env("SWITCHBOARD_TOKEN", TOKEN);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn().unwrap();
        let (keyboard, mut screen) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let shown = Arc::<Mutex<String>>::default();
        let show = Arc::clone(&shown);
        tokio::spawn(async move {
            let mut piece = [0; 4096];
            while let Ok(length @ 1..) = screen.read(&mut piece).await {
                show.lock().unwrap().push_str(&String::from_utf8_lossy(&piece[..length]));
            }
        });
        Self { child, keyboard, shown }
    }

    fn shown(&self) -> String {
        self.shown.lock().unwrap().clone()
    }

    /// Blanks between words may be left out: they were there before.
    async fn shows(&self, text: &str) {
        let seen = timeout(LONG, eventually(LONG * 2, text, async || self.shown().contains(text))).await;
        assert!(seen.is_ok(), "{text:?} is not in\n{:?}", self.shown());
    }

    async fn press(&mut self, key: &str) {
        self.keyboard.write_all(key.as_bytes()).await.unwrap();
        self.keyboard.flush().await.unwrap();
    }

    /// Ends it from elsewhere.
    async fn terminate(&self) {
        let shown = self.shown();
        let pid = shown.split("pid=").nth(1).and_then(|rest| rest.split('.').next()).unwrap();
        assert!(Command::new("kill").args(["-TERM", pid]).status().await.unwrap().success());
    }

    async fn is_given_back(&mut self) {
        self.shows("restored").await;
        self.shows("ended with 0").await;
        let shown = self.shown();
        assert!(shown.contains(LEFT), "{shown:?}");
        timeout(LONG, self.child.wait()).await.expect("the terminal stays").unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn top_shows_the_cluster_and_a_node_that_goes_away_and_gives_the_terminal_back() {
    if !available("script (util-linux)", on_path("script")) {
        return;
    }
    let cluster = Cluster::new().await;
    let a = cluster.start("node-a").await;
    a.sees(1).await;
    let mut b = cluster.start("node-b").await;
    a.sees(2).await;
    for quit in ["q", "\x03"] {
        let mut terminal = Terminal::open(&a);
        for text in [ENTERED, "2 nodes", "node-a", "node-b", "healthy", "NOTIFY", "HEARTBEAT"] {
            terminal.shows(text).await;
        }
        terminal.press("\x1b[B").await;
        terminal.press(quit).await;
        terminal.is_given_back().await;
    }
    let mut terminal = Terminal::open(&a);
    terminal.shows("2 nodes").await;
    terminal.terminate().await;
    terminal.is_given_back().await;
    let mut terminal = Terminal::open(&a);
    terminal.shows("2 nodes").await;
    b.process.kill().await;
    terminal.shows("gone").await;
    // The one that is asked.
    drop(a);
    terminal.shows("cannot").await;
    terminal.press("q").await;
    terminal.is_given_back().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn top_without_a_terminal_is_lines() {
    let cluster = Cluster::new().await;
    let a = cluster.start("node-a").await;
    a.sees(1).await;
    let mut command = Command::new(binary());
    command.args(["top", "--interval", "100ms"]).stdin(Stdio::null());
    command.env("SWITCHBOARD_URL", &a.url).env("SWITCHBOARD_TOKEN", TOKEN);
    let mut top = Process::start("top", command);
    top.says("NODE\tSTATE\tHEARTBEAT\t").await;
    eventually(LONG, "several looks", async || top.output().lines().count() > 5).await;
    let output = top.output();
    let fields: Vec<_> = output.lines().map(|line| line.split('\t').collect::<Vec<_>>()).collect();
    for line in &fields[1..] {
        assert_eq!((line.len(), &line[..2]), (fields[0].len(), &["node-a", "healthy"][..]), "{output}");
    }
    drop(a);
    top.says("trying again").await;
    assert_eq!(top.ended(), None);
    assert_eq!(top.terminate().await.code(), Some(0), "{}", top.output());
    assert!(!top.output().contains('\x1b'), "{:?}", top.output());
}
