//! `switchboard top`, apart from its arguments: what is known ([`state`]), how it is shown ([`columns`], [`render`]), and the terminal ([`screen`]).

mod columns;
mod render;
mod screen;
mod state;

pub(crate) use columns::{head, lines};
pub(crate) use screen::{Key, Screen, is_available};
pub(crate) use state::{Answer, View};
