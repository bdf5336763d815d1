//! The decision about a request, stored in the request's pool.

use core::cell::Cell;
use core::mem::MaybeUninit;
use core::{ptr, slice};

use nginx_sys::ngx_uint_t;
use ngx::http::HttpModuleMainConf as _;
use ngx::ngx_string;

use crate::engine::{Charge, Charges};
use crate::nginx::conf::{Active, ActiveRule, Conf, LocationConf, RuleSet, Settings};
use crate::nginx::event_loop::random_up_to;
use crate::nginx::module::Module;
use crate::nginx::request::{Request, RequestIdentity};
use crate::nginx::slot;
use crate::nginx::slot::RequestSlot;
use crate::policy::headers::retry_after::retry_after;
use crate::policy::limit::Verdict;
use crate::table::{Key, Outcome};

/// The decision about a request. It is never dropped; its memory belongs to the request's pool.
#[derive(Debug)]
pub(crate) struct Context<'r> {
    /// Rules that were applied.
    pub(super) rules: &'static RuleSet,
    /// The location that has the rules.
    pub(super) conf: &'static LocationConf,
    /// One charge for each limit, in the order of the configuration; empty if no limit applied.
    pub(super) charges: &'r [Charge<'r, 'static>],
    pub(super) outcome: Outcome,
    pub(super) response: Response,
    /// Milliseconds that are added to the waiting time of a rejected client: a random jitter, and
    /// the time by which a ban that begins is longer.
    pub(super) added_wait: Cell<u64>,
    /// The keys that are counted under another name.
    pub(super) renamed: Option<&'r Renamed<'r>>,
    /// The request that was rejected last: the request that the decision is about (a main request
    /// or one of its subrequests), or a subrequest that reached rules later.
    pub(super) last_decided: Cell<RequestIdentity>,
}

impl<'r> Context<'r> {
    /// Returns the settings of the location that has the rules.
    #[inline]
    pub(super) fn settings(&self) -> &'static Settings {
        &self.conf.settings
    }

    /// Returns whether any limit applied.
    #[inline]
    pub(super) fn is_accounted(&self) -> bool {
        !self.charges.is_empty()
    }

    #[inline]
    pub(super) fn is_rejected(&self) -> bool {
        self.response == Response::Reject
    }

    /// Returns whether the response has headers about limits.
    #[inline]
    pub(super) fn has_headers(&self) -> bool {
        self.response == Response::Unavailable
            || (self.is_accounted() && (!self.settings().headers.is_empty() || self.is_rejected()))
    }

    /// Returns the charge of the limit with the smallest share left. `None` if no limit applied.
    pub(super) fn tightest(&self) -> Option<&'r Charge<'r, 'static>> {
        tightest(self.charges.iter())
    }

    /// Returns the charge of the tightest limit among those that refused the request. If one of
    /// them rejects it, those that are only tried do not count.
    pub(super) fn refusal(&self) -> Option<&'r Charge<'r, 'static>> {
        let refused = self.charges.iter().filter(|charge| !charge.verdict().admitted);
        tightest(refused.filter(|charge| !self.is_rejected() || !self.is_tried(charge)))
    }

    /// Returns whether a limit belongs to a rule that is tried alone.
    pub(super) fn is_tried(&self, charge: &Charge<'r, 'static>) -> bool {
        let has_trials = self.rules.active().has_trials;
        has_trials && self.rule_of(charge).is_some_and(|rule| rule.trial.is_some())
    }

    /// Returns whether a ban refused the request, which then is charged under no limit.
    pub(super) fn is_banned(&self) -> bool {
        let mut bans = self.charges.iter().filter(|charge| charge.bound().is_of_bans());
        bans.any(|charge| !charge.verdict().admitted && !self.is_tried(charge))
    }

    /// Returns the key of a limit as the client sent it.
    pub(super) fn key_of(&self, charge: &Charge<'r, 'static>) -> &'r [u8] {
        original(charge.key().bytes(), self.renamed)
    }

    /// Returns the rule that a limit belongs to.
    fn rule_of(&self, charge: &Charge<'r, 'static>) -> Option<&'static ActiveRule> {
        let mut rules = self.rules.active().rules.iter();
        rules.find(|rule| rule.has(charge.bound()))
    }

    /// Returns the place of the rule that a limit belongs to, such as `nginx.conf:31`.
    pub(super) fn place_of(&self, charge: &Charge<'r, 'static>) -> Option<&'static str> {
        Some(self.rule_of(charge)?.place)
    }

    /// Returns the status of a rejection: that of the rule of the tightest limit which refused the
    /// request.
    pub(super) fn status(&self) -> isize {
        let rule = self.refusal().and_then(|charge| self.rule_of(charge));
        rule.and_then(|rule| rule.status).unwrap_or(self.settings().status)
    }

    /// Returns the longest delay of a rate, or else that of a dry run. `None` if no rate delays the
    /// request.
    pub(super) fn delay(&self) -> Option<Delay<'r>> {
        let Active { has_trials, .. } = *self.rules.active();
        let is_refused = self.outcome == Outcome::RejectedDryRun && !has_trials;
        if self.response != Response::Admit || is_refused {
            return None;
        }
        let admitted = self.charges.iter().filter(|it| it.verdict().admitted);
        let delays = admitted.map(|charge| Delay {
            millis: charge.verdict().delay(),
            is_dry_run: match has_trials {
                true => self.is_tried(charge),
                false => self.settings().refusal == Outcome::RejectedDryRun,
            },
            charge,
        });
        let delays = delays.filter(|delay| delay.millis > 0);
        // Of equal delays, takes the first.
        delays.rev().max_by_key(|delay| (!delay.is_dry_run, delay.millis))
    }

    pub(super) fn verdicts(&self) -> impl Iterator<Item = Verdict<'r>> + Clone {
        self.charges.iter().map(Charge::verdict)
    }

    /// Returns the waiting time of the client in milliseconds; `None` if retrying is useless.
    pub(super) fn retry_after(&self) -> Option<u64> {
        let rejecting = self.charges.iter().filter(|charge| !self.is_tried(charge));
        let wait = retry_after(rejecting.map(Charge::verdict))?;
        Some(wait.saturating_add(self.added_wait.get()))
    }

    /// Makes the client wait for at least so many milliseconds, since its key is banned from now
    /// on.
    pub(super) fn wait_for_ban(&self, millis: u64) {
        let added = self.added_wait.get();
        let wait = match self.is_rejected() {
            true => self.retry_after().map(|wait| wait.saturating_sub(added)),
            false => self.tightest().and_then(|charge| charge.verdict().retry_after()),
        };
        let longer = millis.saturating_sub(wait.unwrap_or(0));
        self.added_wait.set(added.saturating_add(longer));
    }
}

/// The longest time for which a rate delays a request.
pub(super) struct Delay<'r> {
    pub(super) millis: u64,
    /// Whether it is only logged.
    pub(super) is_dry_run: bool,
    /// Charge of the limit with that rate.
    pub(super) charge: &'r Charge<'r, 'static>,
}

fn tightest<'r>(
    charges: impl Iterator<Item = &'r Charge<'r, 'static>>,
) -> Option<&'r Charge<'r, 'static>> {
    charges.min_by(|one, two| one.verdict().tightness(&two.verdict()))
}

/// An entry in the list of keys that are counted under another name.
#[derive(Debug)]
pub(crate) struct Renamed<'r> {
    name: &'r [u8],
    key: &'r [u8],
    next: Option<&'r Renamed<'r>>,
}

/// The response to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Response {
    Admit,
    /// The client exceeds a limit.
    Reject,
    /// No store could decide.
    Unavailable,
}

impl Response {
    /// Returns the response to a request with this outcome, unless `on_error` decides.
    #[inline]
    pub(super) fn to(outcome: Outcome) -> Response {
        match outcome {
            Outcome::Rejected => Response::Reject,
            _ => Response::Admit,
        }
    }
}

/// Memory in a request's pool for the context and the charges.
pub(crate) struct Room<'r> {
    context: &'r mut MaybeUninit<Context<'r>>,
    charges: &'r mut [MaybeUninit<Charge<'r, 'static>>],
    /// Number of charges written.
    len: usize,
}

/// Memory in a request's pool for the keys.
pub(super) struct Keys<'r> {
    /// Unused entries. An iterator is two words, of which `next` writes one.
    free: slice::IterMut<'r, MaybeUninit<Key<'r>>>,
    /// Head of the list of renamed keys.
    renamed: Option<&'r Renamed<'r>>,
}

/// The place of a main request's context.
pub(super) type ContextSlot<'r> = RequestSlot<'r, Context<'r>>;

/// Adds a place for the context to each request of the configuration being read. Returns its
/// number; `None` without memory.
pub(crate) fn add_slot(conf: &mut Conf<'_>) -> Option<ngx_uint_t> {
    slot::add(conf, ngx_string!("ratelimit context"))
}

/// Returns the place of a main request's context. `context_slot` is its number in the
/// configuration.
#[inline]
pub(super) fn slot_of<'r>(main: &Request<'r>, context_slot: usize) -> ContextSlot<'r> {
    // SAFETY: `add_slot` reserved this number for contexts in the request's configuration.
    unsafe { main.slot(context_slot) }
}

/// Returns the decision about a main request; `None` before there is one.
#[inline]
pub(super) fn of_main<'r>(main: &Request<'r>) -> Option<&'r Context<'r>> {
    let conf = Module::main_conf(main)?;
    slot_of(main, conf.context_slot).get()
}

/// Returns the decision about the main request of `request`; `None` before there is one.
pub(super) fn of<'r>(request: &Request<'r>) -> Option<&'r Context<'r>> {
    of_main(request.main())
}

impl<'r> Room<'r> {
    /// Allocates memory from the request's pool for a context, and for the most keys and charges
    /// that `rules` can need. `None` without memory.
    #[inline]
    pub(super) fn new(request: &Request<'r>, rules: &Active) -> Option<(Room<'r>, Keys<'r>)> {
        const {
            assert!(align_of::<Context<'_>>() == align_of::<Charge<'_, '_>>());
            assert!(align_of::<Context<'_>>() == align_of::<Key<'_>>());
            assert!(align_of::<Context<'_>>() <= nginx_sys::NGX_ALIGNMENT);
        };
        let (keys, charges) = (rules.key_count, rules.charge_count);
        // Cannot overflow: the rules and limits are in memory themselves.
        let size = size_of::<Key<'_>>().wrapping_mul(keys);
        let size = size.wrapping_add(size_of::<Charge<'_, '_>>().wrapping_mul(charges));
        let size = size.wrapping_add(size_of::<Context<'_>>());
        let memory = request.allocate(size)?;
        // SAFETY: `memory` has `size` bytes, lives as long as the request, and nothing else refers
        // to it. The keys follow the context, and the charges follow the keys; the assertions above
        // check the alignment.
        unsafe {
            let context = memory.cast::<MaybeUninit<Context<'r>>>();
            let free = context.add(1).cast::<MaybeUninit<Key<'r>>>();
            let room = Room {
                context: &mut *context.as_ptr(),
                charges: slice::from_raw_parts_mut(free.add(keys).cast().as_ptr(), charges),
                len: 0,
            };
            let keys = Keys {
                free: slice::from_raw_parts_mut(free.as_ptr(), keys).iter_mut(),
                renamed: None,
            };
            Some((room, keys))
        }
    }

    /// Stores the decision with its request, in `slot`, which must belong to the same request.
    // Always inlined: a call would cost every request.
    #[inline(always)]
    pub(super) fn keep(
        self,
        request: &Request<'r>,
        slot: ContextSlot<'r>,
        (conf, rules): (&'static LocationConf, &'static RuleSet),
        (outcome, response): (Outcome, Response),
        renamed: Option<&'r Renamed<'r>>,
    ) -> &'r Context<'r> {
        // SAFETY: the first `len` charges are written.
        let charges = unsafe { slice::from_raw_parts(self.charges.as_ptr().cast(), self.len) };
        let context = &*self.context.write(Context {
            rules,
            conf,
            charges,
            outcome,
            response,
            added_wait: Cell::new(match response {
                Response::Admit => 0,
                _ => random_up_to(conf.settings.retry_after_jitter),
            }),
            renamed,
            last_decided: Cell::new(request.identity()),
        });
        slot.set(Some(context));
        context
    }
}

/// Returns the key that is counted under `name`.
fn original<'r>(name: &'r [u8], mut next: Option<&'r Renamed<'r>>) -> &'r [u8] {
    while let Some(renamed) = next {
        if ptr::eq(renamed.name, name) {
            return renamed.key;
        }
        next = renamed.next;
    }
    name
}

impl<'r> Keys<'r> {
    /// Copies the name that `key` is counted under to the request's pool. `None` without memory.
    pub(super) fn rename(
        &mut self,
        key: &'r [u8],
        name: &[u8],
        request: &Request<'r>,
    ) -> Option<&'r [u8]> {
        let name = request.copy(name)?;
        let next = self.renamed;
        self.renamed = Some(request.keep(Renamed { name, key, next })?);
        Some(name)
    }

    /// Copies a further name of the key that is counted under `counted`.
    pub(super) fn name_again(
        &mut self,
        counted: &'r [u8],
        name: &[u8],
        request: &Request<'r>,
    ) -> Option<&'r [u8]> {
        self.rename(original(counted, self.renamed), name, request)
    }

    /// Returns the list of keys that are counted under another name.
    #[inline]
    pub(super) fn renamed(&self) -> Option<&'r Renamed<'r>> {
        self.renamed
    }

    /// Stores a key in the request's memory. `None` if there are more keys than rules can need.
    #[inline]
    pub(super) fn keep(&mut self, key: Key<'r>) -> Option<&'r Key<'r>> {
        Some(self.free.next()?.write(key))
    }
}

impl<'r> Room<'r> {
    /// Returns the charges written so far.
    pub(super) fn charges(&self) -> &[Charge<'r, 'static>] {
        // SAFETY: the first `len` charges are written.
        unsafe { slice::from_raw_parts(self.charges.as_ptr().cast(), self.len) }
    }
}

impl<'r> Charges<'r, 'static> for Room<'r> {
    #[inline]
    fn push(&mut self, charge: Charge<'r, 'static>) {
        if let Some(place) = self.charges.get_mut(self.len) {
            place.write(charge);
            self.len = self.len.wrapping_add(1);
        }
    }

    #[inline]
    fn as_mut_slice(&mut self) -> &mut [Charge<'r, 'static>] {
        // SAFETY: the first `len` charges are written, and nothing else refers to them.
        unsafe { slice::from_raw_parts_mut(self.charges.as_mut_ptr().cast(), self.len) }
    }
}
