//! Scripts that run in the server, and calls of them.

use redis::{Cmd, Value};

use super::connection::RedisLink;
use super::layout::Layout;
use crate::policy::window::CLOCK_SKEW;
use crate::store::contract::error::{Failure, Refusal, StoreError};
use crate::store::contract::strategy::LONGEST_LIFE;

/// A script, which is executed atomically. Its file describes its arguments and its answer.
#[derive(Clone, Debug)]
pub(super) struct Script {
    pub(super) name: &'static str,
    code: String,
    hash: String,
    /// Whether a server to which the keys of a shard are being moved one by one can find out if it
    /// has all keys of a call.
    knows_its_keys: bool,
}

/// A command, which may run a script.
#[derive(Debug)]
pub(super) struct RedisCall<'s> {
    command: Cmd,
    script: Option<&'s Script>,
}

impl Script {
    /// Creates the script `name`, which consists of the library's constants, `changes.lua` and
    /// `code`. It fails in a namespace with another layout.
    pub(super) fn new(name: &'static str, code: &str, layout: Layout) -> Script {
        let changes = include_str!("changes.lua");
        let life = LONGEST_LIFE.as_millis();
        let constants = format!("local CLOCK_SKEW, LONGEST_LIFE = {CLOCK_SKEW}, {life}\n");
        let layout = format!("local LAYOUT = '{layout}'\n");
        let code = format!("{constants}{layout}{changes}{code}");
        let hash = redis::Script::new(&code).get_hash().into();
        Script { name, code, hash, knows_its_keys: true }
    }

    /// Marks a script whose calls name only some of its keys. It would take missing keys for empty
    /// ones.
    pub(super) fn finding_keys(self) -> Script {
        Script { knows_its_keys: false, ..self }
    }

    /// Returns the command that runs the script on these keys, to which arguments are then added.
    pub(super) fn command(&self, keys: &[String]) -> Cmd {
        let mut command = Cmd::new();
        command.arg("EVALSHA").arg(&self.hash);
        command.arg(keys.len()).arg(keys);
        command
    }

    /// Returns the call of a command from [`Script::command`].
    pub(super) fn call(&self, command: Cmd) -> RedisCall<'_> {
        RedisCall { command, script: Some(self) }
    }
}

impl RedisCall<'_> {
    /// Returns whether it may be sent to a server to which the shard's keys are still being moved.
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
    /// Sends a call, each time after the command `before`. The text of a script is sent only if the
    /// server does not know the script, and so has executed nothing.
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

/// Returns whether a key has the wrong type.
pub(super) fn is_of_wrong_type(error: &StoreError) -> bool {
    matches!(&error.failure, Failure::Failed(words) if words.starts_with("WRONGTYPE"))
}

fn is_unknown(error: &StoreError) -> bool {
    matches!(&error.failure, Failure::Refused(Refusal::Other(code)) if &**code == "NOSCRIPT")
}
