//! Scripts that run in the server, and calls of them.

use redis::{Cmd, Value};

use super::connection::RedisLink;
use super::layout::Layout;
use crate::policy::window::CLOCK_SKEW;
use crate::store::contract::error::{Failure, Refusal, StoreError};
use crate::store::contract::strategy::LONGEST_LIFE;

/// A script, which is one atomic step. The files say what they are given and answer.
#[derive(Clone, Debug)]
pub(super) struct Script {
    pub(super) name: &'static str,
    code: String,
    hash: String,
    /// Whether a server that is being given the keys of a shard one by one can tell if it has all
    /// that a call needs.
    knows_its_keys: bool,
}

/// A command, which may be to run a script.
#[derive(Debug)]
pub(super) struct RedisCall<'s> {
    command: Cmd,
    script: Option<&'s Script>,
}

impl Script {
    /// A script of this name, which begins with constants of the library's and `changes.lua`, and goes on
    /// with `code`. It fails where a namespace has another layout than this.
    pub(super) fn new(name: &'static str, code: &str, layout: Layout) -> Script {
        let changes = include_str!("changes.lua");
        let life = LONGEST_LIFE.as_millis();
        let constants = format!("local CLOCK_SKEW, LONGEST_LIFE = {CLOCK_SKEW}, {life}\n");
        let layout = format!("local LAYOUT = '{layout}'\n");
        let code = format!("{constants}{layout}{changes}{code}");
        let hash = redis::Script::new(&code).get_hash().into();
        Script { name, code, hash, knows_its_keys: true }
    }

    /// Returns the script for calls that name only some of its keys; missing ones are taken for
    /// empty.
    pub(super) fn finding_keys(self) -> Script {
        Script { knows_its_keys: false, ..self }
    }

    /// The command that runs the script on keys, to which the script's arguments are to be added.
    pub(super) fn command(&self, keys: &[String]) -> Cmd {
        let mut command = Cmd::new();
        command.arg("EVALSHA").arg(&self.hash);
        command.arg(keys.len()).arg(keys);
        command
    }

    /// A call of what [`Script::command`] began.
    pub(super) fn call(&self, command: Cmd) -> RedisCall<'_> {
        RedisCall { command, script: Some(self) }
    }
}

impl RedisCall<'_> {
    /// Whether it may be sent to a server that is still being given the keys of the shard.
    pub(super) fn may_be_sent_ahead(&self) -> bool {
        self.script.is_none_or(|script| script.knows_its_keys)
    }
}

impl From<Cmd> for RedisCall<'_> {
    fn from(command: Cmd) -> Self {
        RedisCall { command, script: None }
    }
}

impl RedisLink {
    /// Makes a call, each time after the command `before`. A script is sent as such only if the
    /// server does not know it: then nothing was run.
    pub(super) async fn call(
        &mut self,
        call: &RedisCall<'_>,
        before: Option<&Cmd>,
    ) -> Result<Value, StoreError> {
        let commands: Vec<&Cmd> = before.into_iter().chain([&call.command]).collect();
        match (self.exchange(&commands).await, call.script) {
            (Err(error), Some(script)) if is_unknown(&error) => {
                let mut load = Cmd::new();
                load.arg("SCRIPT").arg("LOAD").arg(&script.code);
                self.exchange(&[&load]).await?;
                self.exchange(&commands).await
            }
            (answer, _) => answer,
        }
    }
}

/// Whether a key is of another type than it should be.
pub(super) fn is_of_wrong_type(error: &StoreError) -> bool {
    matches!(&error.failure, Failure::Failed(words) if words.starts_with("WRONGTYPE"))
}

fn is_unknown(error: &StoreError) -> bool {
    matches!(&error.failure, Failure::Refused(Refusal::Other(code)) if &**code == "NOSCRIPT")
}
