//! The decision about a request, kept with the request.

use core::cell::Cell;
use core::mem::MaybeUninit;
use core::{ptr, slice};

use nginx_sys::ngx_uint_t;
use ngx::http::HttpModuleMainConf as _;
use ngx::ngx_string;

use crate::engine::{Charge, Charges};
use crate::nginx::conf::{Active, Conf, RuleSet, Settings};
use crate::nginx::module::Module;
use crate::nginx::request::{Request, RequestIdentity};
use crate::nginx::slot;
use crate::nginx::slot::RequestSlot;
use crate::policy::headers::retry_after::retry_after;
use crate::policy::limit::Verdict;
use crate::table::{Key, Outcome};

/// The decision on a request. It is never dropped: its memory is the request's.
#[derive(Debug)]
pub(crate) struct Context<'r> {
    /// The rules that were applied.
    pub(super) rules: &'static RuleSet,
    /// The settings of the location that they were found in.
    pub(super) settings: &'static Settings,
    /// Charge of each limit, in the order of the configuration; empty if no hit was accounted.
    pub(super) charges: &'r [Charge<'r, 'static>],
    pub(super) outcome: Outcome,
    pub(super) response: Response,
    /// Milliseconds that are added to a rejected client's waiting time.
    pub(super) jitter: u64,
    /// The keys that are counted under other names.
    pub(super) renamed: Option<&'r Renamed<'r>>,
    /// The request that was rejected last: the one that was decided on (a main request, or one of its
    /// subrequests), or a subrequest that reached rules after that.
    pub(super) last_decided: Cell<RequestIdentity>,
}

impl<'r> Context<'r> {
    /// Whether any limit applied.
    #[inline]
    pub(super) fn is_accounted(&self) -> bool {
        !self.charges.is_empty()
    }

    #[inline]
    pub(super) fn is_rejected(&self) -> bool {
        self.response == Response::Reject
    }

    /// Whether there is anything to tell the client.
    #[inline]
    pub(super) fn has_headers(&self) -> bool {
        self.response == Response::Unavailable
            || (self.is_accounted() && (!self.settings.headers.is_empty() || self.is_rejected()))
    }

    /// The limit that has the smallest share left, and what it was charged.
    pub(super) fn tightest(&self) -> Option<&'r Charge<'r, 'static>> {
        tightest(self.charges.iter())
    }

    /// The tightest of the limits that refused the request.
    pub(super) fn refusal(&self) -> Option<&'r Charge<'r, 'static>> {
        let charges = self.charges.iter();
        tightest(charges.filter(|charge| !charge.verdict().admitted))
    }

    /// The key that a limit counted by, as it was sent.
    pub(super) fn key_of(&self, charge: &Charge<'r, 'static>) -> &'r [u8] {
        let name = charge.key().bytes();
        let mut next = self.renamed;
        while let Some(renamed) = next {
            if ptr::eq(renamed.name, name) {
                return renamed.key;
            }
            next = renamed.next;
        }
        name
    }

    /// Returns the place of the rule that a limit is of, such as `nginx.conf:31`.
    pub(super) fn place_of(&self, charge: &Charge<'r, 'static>) -> Option<&'static str> {
        let mut rules = self.rules.active().rules.iter();
        let rule = rules.find(|rule| rule.has(charge.bound()));
        rule.map(|rule| rule.place)
    }

    /// Returns for how long a rate holds the request back, or would if this were no dry run; `None`: none does.
    pub(super) fn delay(&self) -> Option<Delay<'r>> {
        if self.response != Response::Admit || self.outcome == Outcome::RejectedDryRun {
            return None;
        }
        let admitted = self.charges.iter().filter(|it| it.verdict().admitted);
        let delays = admitted.map(|charge| Delay { millis: charge.verdict().delay(), charge });
        // The first one of equal ones.
        let longest = delays.rev().max_by_key(|delay| delay.millis)?;
        (longest.millis > 0).then_some(longest)
    }

    /// Returns whether the request is admitted whatever limits say.
    pub(super) fn is_dry_run(&self) -> bool {
        self.settings.refusal == Outcome::RejectedDryRun
    }

    pub(super) fn verdicts(&self) -> impl Iterator<Item = Verdict<'r>> + Clone {
        self.charges.iter().map(Charge::verdict)
    }

    /// Returns the waiting time of the client, in milliseconds; `None` if it need not try again.
    pub(super) fn retry_after(&self) -> Option<u64> {
        let wait = retry_after(self.verdicts())?;
        Some(wait.saturating_add(self.jitter))
    }
}

/// The longest time for which a limit holds a request back.
pub(super) struct Delay<'r> {
    pub(super) millis: u64,
    /// Charge of the limit.
    pub(super) charge: &'r Charge<'r, 'static>,
}

fn tightest<'r>(
    charges: impl Iterator<Item = &'r Charge<'r, 'static>>,
) -> Option<&'r Charge<'r, 'static>> {
    charges.min_by(|one, two| one.verdict().tightness(&two.verdict()))
}

/// A key that is counted under another name, in a list of them.
#[derive(Debug)]
pub(crate) struct Renamed<'r> {
    name: &'r [u8],
    key: &'r [u8],
    next: Option<&'r Renamed<'r>>,
}

/// The fate of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Response {
    Admit,
    /// The client is told that it exceeds a limit.
    Reject,
    /// The client is told that no store could decide.
    Unavailable,
}

/// Memory of a request for its context and charges.
pub(crate) struct Room<'r> {
    context: &'r mut MaybeUninit<Context<'r>>,
    charges: &'r mut [MaybeUninit<Charge<'r, 'static>>],
    /// Number of charges written.
    len: usize,
}

/// Memory of a request for its keys.
pub(super) struct Keys<'r> {
    /// An iterator, since that has two words to look at, and one to change.
    free: slice::IterMut<'r, MaybeUninit<Key<'r>>>,
    /// The last one that is counted under another name.
    renamed: Option<&'r Renamed<'r>>,
}

/// Place of a main request's context.
pub(super) type ContextSlot<'r> = RequestSlot<'r, Context<'r>>;

/// Adds the place of the context to the requests of the configuration being read; returns its number.
/// `None`: no memory.
pub(crate) fn add_slot(conf: &mut Conf<'_>) -> Option<ngx_uint_t> {
    slot::add(conf, ngx_string!("ratelimit context"))
}

/// Returns the place of a main request's context, which is number `context_slot` of the configuration.
#[inline]
pub(super) fn slot_of<'r>(main: &Request<'r>, context_slot: usize) -> ContextSlot<'r> {
    // SAFETY: `add_slot` made it for contexts, in the configuration that says its number.
    unsafe { main.slot(context_slot) }
}

/// Returns the decision on a main request, if there was one.
#[inline]
pub(super) fn of_main<'r>(main: &Request<'r>) -> Option<&'r Context<'r>> {
    let conf = Module::main_conf(main)?;
    slot_of(main, conf.context_slot).get()
}

/// Returns the decision on the main request of `request`, if there was one.
pub(super) fn of<'r>(request: &Request<'r>) -> Option<&'r Context<'r>> {
    of_main(request.main())
}

impl<'r> Room<'r> {
    /// Memory of a request for a context, and for what `rules` may need of keys and charges. `None`:
    /// there is none.
    #[inline]
    pub(super) fn new(request: &Request<'r>, rules: &Active) -> Option<(Room<'r>, Keys<'r>)> {
        const {
            assert!(align_of::<Context<'_>>() == align_of::<Charge<'_, '_>>());
            assert!(align_of::<Context<'_>>() == align_of::<Key<'_>>());
            assert!(align_of::<Context<'_>>() <= nginx_sys::NGX_ALIGNMENT);
        };
        let (keys, charges) = (rules.rules.len(), rules.limit_count);
        // No overflow: there are so many rules and limits in memory.
        let size = size_of::<Key<'_>>().wrapping_mul(keys);
        let size = size.wrapping_add(size_of::<Charge<'_, '_>>().wrapping_mul(charges));
        let size = size.wrapping_add(size_of::<Context<'_>>());
        let memory = request.allocate(size)?;
        // SAFETY: so much memory, which lives as long as the request's, and which nothing else refers to.
        // The keys follow the context, and the charges the keys; all are aligned, as was checked.
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

    /// Keeps a decision in `slot`, which is that of the same request: `make` is given the charges.
    #[inline]
    pub(super) fn keep(
        self,
        slot: ContextSlot<'r>,
        make: impl FnOnce(&'r [Charge<'r, 'static>]) -> Context<'r>,
    ) -> &'r Context<'r> {
        // SAFETY: so many charges were written.
        let charges = unsafe { slice::from_raw_parts(self.charges.as_ptr().cast(), self.len) };
        let context = &*self.context.write(make(charges));
        slot.set(Some(context));
        context
    }
}

impl<'r> Keys<'r> {
    /// Keeps the name that `key` is counted under as long as `request`. `None`: no memory.
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

    /// The keys that are counted under other names.
    #[inline]
    pub(super) fn renamed(&self) -> Option<&'r Renamed<'r>> {
        self.renamed
    }

    /// Keeps a key as long as the request. `None` if there are more than rules.
    #[inline]
    pub(super) fn keep(&mut self, key: Key<'r>) -> Option<&'r Key<'r>> {
        Some(self.free.next()?.write(key))
    }
}

impl<'r> Room<'r> {
    /// Returns the charges.
    pub(super) fn charges(&self) -> &[Charge<'r, 'static>] {
        // SAFETY: as of `as_mut_slice`.
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
        // SAFETY: so many charges were written, and nothing else refers to them.
        unsafe { slice::from_raw_parts_mut(self.charges.as_mut_ptr().cast(), self.len) }
    }
}
