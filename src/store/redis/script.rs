//! Scripts that run in the server.

use redis::{Cmd, Value};

use super::connection::Link;
use crate::store::error::{Failure, Refusal, StoreError};

/// A script, which is one atomic step. The files say what they are given and answer.
#[derive(Debug)]
pub(super) struct Script {
    name: &'static str,
    code: &'static str,
    hash: String,
}

impl Script {
    pub(super) fn new(name: &'static str, code: &'static str) -> Script {
        let hash = redis::Script::new(code).get_hash().into();
        Script { name, code, hash }
    }

    /// The command that runs the script on `key`, to which the script's arguments are to be added.
    pub(super) fn call(&self, key: &str) -> Cmd {
        let mut call = Cmd::new();
        call.arg("EVALSHA").arg(&self.hash).arg(1).arg(key);
        call
    }
}

impl Link {
    /// Runs a script, which is sent as such only if the server does not know it: then nothing was
    /// run. `read` reads the answer; `None` if it is not what the script answers.
    pub(super) async fn run<T>(
        &mut self,
        script: &Script,
        call: &Cmd,
        read: impl FnOnce(Value) -> Option<T>,
    ) -> Result<T, StoreError> {
        let answer = match self.exchange(call).await {
            Err(error) if is_unknown(&error) => {
                let mut load = Cmd::new();
                load.arg("SCRIPT").arg("LOAD").arg(script.code);
                self.exchange(&load).await?;
                self.exchange(call).await
            }
            answer => answer,
        };
        read(answer?).ok_or_else(|| self.misunderstood(script.name))
    }
}

fn is_unknown(error: &StoreError) -> bool {
    matches!(&error.failure, Failure::Refused(Refusal::Other(code)) if &**code == "NOSCRIPT")
}
