//! Turns notifications of the registry's channel into hints that membership moved.

use tokio::sync::watch;

use crate::listener::Sink;
use crate::schema::SchemaName;

/// Whatever the text says, it is only a hint: the table is the truth.
pub(crate) struct Hints {
    notify_channel: String,
    moved: watch::Sender<()>,
}

impl Hints {
    pub(crate) fn new(schema: &SchemaName) -> Self {
        Self { notify_channel: format!("{schema}.registry"), moved: watch::Sender::new(()) }
    }

    pub(crate) fn receiver(&self) -> watch::Receiver<()> {
        self.moved.subscribe()
    }
}

impl Sink for Hints {
    fn notify_channel(&self) -> &str {
        &self.notify_channel
    }

    fn notified(&self, _text: &str) {
        self.moved.send_replace(());
    }

    fn listening(&self) {
        self.moved.send_replace(());
    }
}
