//! The configuration of a `location`, and how levels inherit.

use std::rc::Rc;

use nginx_sys::{NGX_HTTP_TOO_MANY_REQUESTS, NGX_LOG_ERR, ngx_http_request_t, ngx_int_t};

use super::super::http::{api, metrics};
use super::super::log::Level;
use super::super::request::Request;
use super::rules::RuleSet;
use super::text::{EvaluationError, WrittenText};
use crate::table::Outcome;

/// The configuration of a `location`.
#[derive(Debug, Default)]
pub(in super::super) struct LocationConf {
    pub(super) key: Option<Rc<WrittenText>>,
    pub(super) rules: Option<Rc<RuleSet>>,
    /// The rules of this level or else of one above, unless they are off, or this is a location that
    /// answers by itself: it has its own only.
    effective: Option<Rc<RuleSet>>,
    /// What the location itself answers with, if it does.
    pub(in super::super) content: Option<Content>,
    /// Whether that is what the location around answers with: this is a block within it.
    pub(in super::super) is_content_inherited: bool,
    pub(super) options: Options,
    /// Those of this level and of all levels above.
    pub(in super::super) settings: Settings,
    /// [`MainConf::context_slot`](super::MainConf), where it is needed most.
    pub(in super::super) context_slot: usize,
}

/// What a location answers with that is ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Content {
    /// `ratelimit_api`
    Api {
        /// Whether requests may change counters.
        may_write: bool,
    },
    /// `ratelimit_metrics`
    Metrics,
}

impl Content {
    /// The handler that answers.
    pub(in super::super) fn handler(self) -> ContentHandler {
        match self {
            Content::Api { .. } => api::handle,
            Content::Metrics => metrics::handle,
        }
    }
}

/// nginx's callback for the content of a location.
pub(in super::super) type ContentHandler =
    unsafe extern "C" fn(*mut ngx_http_request_t) -> ngx_int_t;

/// What the directives of one level say.
#[derive(Debug, Default)]
pub(super) struct Options {
    pub(super) count_rejected: Option<bool>,
    pub(super) status: Option<ngx_int_t>,
    pub(super) dry_run: Option<bool>,
    pub(super) log_level: Option<Level>,
    pub(super) headers: Option<Headers>,
    pub(super) retry_after_jitter: Option<u64>,
    pub(super) phase: Option<Phase>,
}

/// How requests of a location are treated.
#[derive(Debug)]
pub(in super::super) struct Settings {
    /// Whether rejected requests are charged.
    pub(in super::super) count_rejected: bool,
    /// The status of a rejection.
    pub(in super::super) status: ngx_int_t,
    /// What comes of a request that is refused: in a dry run it is not rejected.
    pub(in super::super) refusal: Outcome,
    /// The level at which rejections are logged.
    pub(in super::super) log_level: Level,
    pub(in super::super) headers: Headers,
    /// The most that is added to `Retry-After` at random, in milliseconds.
    pub(in super::super) retry_after_jitter: u64,
    pub(in super::super) phase: Phase,
}

/// Which headers tell clients about limits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in super::super) struct Headers {
    pub(in super::super) ietf: bool,
    pub(in super::super) draft03: bool,
    pub(in super::super) legacy: bool,
}

/// When a request is decided on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in super::super) enum Phase {
    /// Before access control.
    #[default]
    Preaccess,
    /// After it.
    Precontent,
}

impl LocationConf {
    /// Takes what this level does not say from the level above.
    pub(in super::super) fn inherit(&mut self, prev: &LocationConf, context_slot: usize) {
        self.key = self.key.take().or_else(|| prev.key.clone());
        let own = self.rules.take();
        self.rules = own.clone().or_else(|| prev.rules.clone());
        self.effective = match self.content {
            None => self.rules.clone(),
            Some(_) if self.is_content_inherited => own.or_else(|| prev.effective.clone()),
            Some(_) => own,
        }
        .filter(|rules| !rules.is_off());
        self.options.inherit(&prev.options);
        self.settings = Settings::of(&self.options);
        self.context_slot = context_slot;
    }

    /// The rules that apply, if any, to be kept.
    pub(super) fn effective_rules(&self) -> Option<&Rc<RuleSet>> {
        self.effective.as_ref()
    }

    /// The rules that apply, if any.
    #[inline]
    pub(in super::super) fn rules(&self) -> Option<&RuleSet> {
        self.effective.as_deref()
    }

    /// The key as it is written.
    pub(super) fn written_key(&self) -> &'static [u8] {
        self.key
            .as_ref()
            .map_or(b"$remote_addr", |key| key.written.0)
    }

    /// The key that `request` is counted by: `$remote_addr` without a `ratelimit_key`.
    #[inline]
    pub(in super::super) fn evaluate_key<'r>(
        &self,
        request: &Request<'r>,
    ) -> Result<&'r [u8], EvaluationError> {
        match &self.key {
            Some(key) => key.text.evaluate(request),
            None => Ok(request.client_text()),
        }
    }
}

impl Options {
    fn inherit(&mut self, prev: &Options) {
        self.count_rejected = self.count_rejected.or(prev.count_rejected);
        self.status = self.status.or(prev.status);
        self.dry_run = self.dry_run.or(prev.dry_run);
        self.log_level = self.log_level.or(prev.log_level);
        self.headers = self.headers.or(prev.headers);
        self.retry_after_jitter = self.retry_after_jitter.or(prev.retry_after_jitter);
        self.phase = self.phase.or(prev.phase);
    }
}

impl Settings {
    /// What was not said is the default.
    fn of(options: &Options) -> Settings {
        Settings {
            count_rejected: options.count_rejected.unwrap_or(false),
            status: options
                .status
                .unwrap_or(NGX_HTTP_TOO_MANY_REQUESTS as ngx_int_t),
            refusal: match options.dry_run {
                Some(true) => Outcome::RejectedDryRun,
                _ => Outcome::Rejected,
            },
            log_level: options.log_level.unwrap_or(NGX_LOG_ERR),
            headers: options.headers.unwrap_or(Headers::IETF),
            retry_after_jitter: options.retry_after_jitter.unwrap_or(0),
            phase: options.phase.unwrap_or_default(),
        }
    }
}

impl Default for Settings {
    fn default() -> Self {
        Settings::of(&Options::default())
    }
}

impl Headers {
    const IETF: Headers = Headers {
        ietf: true,
        draft03: false,
        legacy: false,
    };

    /// Whether there are none.
    #[inline]
    pub(in super::super) fn is_off(self) -> bool {
        !(self.ietf || self.draft03 || self.legacy)
    }
}
