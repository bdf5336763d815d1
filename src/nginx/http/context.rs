//! What was decided about a request, kept with the request.
//!
//! It is kept in the slot of a variable that no configuration can name: unlike the contexts of
//! modules, variables survive internal redirects, and subrequests share them.

use core::cell::Cell;
use core::ptr::{self, NonNull};

use nginx_sys::{
    NGX_OK, ngx_conf_t, ngx_http_add_variable, ngx_http_get_variable_index, ngx_http_request_t,
    ngx_int_t, ngx_palloc, ngx_pnalloc, ngx_str_t, ngx_uint_t, ngx_variable_value_t,
};
use ngx::http::HttpModuleMainConf as _;
use ngx::ngx_string;

use super::super::conf::{Active, RuleSet, Settings};
use super::super::module::Module;
use crate::engine::{Charge, Charges};
use crate::policy::headers;
use crate::policy::limit::Verdict;
use crate::table::{Key, Outcome};

/// The decision on a request. It is never dropped: its memory is the request's.
#[derive(Debug)]
pub(super) struct Context {
    /// The rules that were applied.
    pub(super) rules: &'static RuleSet,
    /// The settings of the location that they were found in.
    pub(super) settings: &'static Settings,
    /// What each limit said, in the order of the configuration; empty if no hit was accounted.
    pub(super) charges: &'static [Charge<'static, 'static>],
    pub(super) outcome: Outcome,
    pub(super) response: Response,
    /// What is added to the time that a rejected client is told to wait, in milliseconds.
    pub(super) jitter: u64,
    /// The keys that are counted under other names.
    pub(super) renamed: Option<&'static Renamed>,
    /// The request that was rejected last: the one that was decided on (a main request, or one of its
    /// subrequests), or a subrequest that reached rules after that.
    pub(super) last_decided: Cell<*const ngx_http_request_t>,
}

impl Context {
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
            || (self.is_accounted() && (!self.settings.headers.is_off() || self.is_rejected()))
    }

    /// The limit that has the smallest share left, and what it was charged.
    pub(super) fn tightest(&self) -> Option<&'static Charge<'static, 'static>> {
        tightest(self.charges.iter())
    }

    /// The tightest of the limits that refused the request.
    pub(super) fn refusal(&self) -> Option<&'static Charge<'static, 'static>> {
        let charges = self.charges.iter();
        tightest(charges.filter(|charge| !charge.verdict().admitted))
    }

    /// The key that a limit counted by, as it was sent.
    pub(super) fn key_of(&self, charge: &Charge<'static, 'static>) -> &'static [u8] {
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

    pub(super) fn verdicts(&self) -> impl Iterator<Item = Verdict<'static>> + Clone {
        self.charges.iter().map(Charge::verdict)
    }

    /// How long the client is to wait, in milliseconds; `None` if it need not try again.
    pub(super) fn retry_after(&self) -> Option<u64> {
        let wait = headers::retry_after(self.verdicts())?;
        Some(wait.saturating_add(self.jitter))
    }
}

fn tightest(
    charges: impl Iterator<Item = &'static Charge<'static, 'static>>,
) -> Option<&'static Charge<'static, 'static>> {
    charges.min_by(|one, two| one.verdict().tightness(&two.verdict()))
}

/// A key that is counted under another name, in a list of them.
#[derive(Debug)]
pub(super) struct Renamed {
    name: &'static [u8],
    key: &'static [u8],
    next: Option<&'static Renamed>,
}

/// What becomes of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Response {
    Admit,
    /// It is told that it exceeds a limit.
    Reject,
    /// It is told that nobody could decide.
    Unavailable,
}

/// Memory of a request for its context, keys and charges.
pub(super) struct Room {
    context: NonNull<Context>,
    charges: NonNull<Charge<'static, 'static>>,
    len: usize,
    capacity: usize,
}

/// Memory of a request for its keys.
pub(super) struct Keys {
    next: NonNull<Key<'static>>,
    left: usize,
    /// The last one that is counted under another name.
    renamed: Option<&'static Renamed>,
}

/// A variable without a value.
unsafe extern "C" fn no_value(
    _request: *mut ngx_http_request_t,
    value: *mut ngx_variable_value_t,
    _data: usize,
) -> ngx_int_t {
    // SAFETY: nginx passes the value to be set.
    unsafe { (*value).set_not_found(1) };
    NGX_OK as ngx_int_t
}

/// Adds a slot to the configuration being read: that of the context, or that of what a request
/// `is_suspended` for; returns its index. `None`: no memory.
pub(in super::super) fn add_slot(cf: *mut ngx_conf_t, is_suspended: bool) -> Option<ngx_uint_t> {
    // A blank cannot be part of a variable's name in a configuration.
    let mut name: ngx_str_t = match is_suspended {
        false => ngx_string!("ratelimit context"),
        true => ngx_string!("ratelimit suspension"),
    };
    // SAFETY: nginx reads the configuration.
    unsafe {
        ngx_http_add_variable(cf, &mut name, 0)
            .as_mut()?
            .get_handler = Some(no_value);
        ngx_uint_t::try_from(ngx_http_get_variable_index(cf, &mut name)).ok()
    }
}

/// Where the context of a main request is kept: null, or what [`Room::keep`] wrote.
#[derive(Clone, Copy)]
pub(super) struct ContextSlot(NonNull<*mut Context>);

impl ContextSlot {
    /// The slot of the main request of `request`, which is number `context_slot` of the request's
    /// configuration.
    #[inline]
    pub(super) fn of(request: *mut ngx_http_request_t, context_slot: usize) -> Option<ContextSlot> {
        // SAFETY: a request that has not ended has values for all variables of its configuration,
        // which are zeroed when it begins. Nobody else uses `data` of this one.
        let data = unsafe { &raw mut (*(*request).variables.add(context_slot)).data };
        NonNull::new(data.cast()).map(ContextSlot)
    }

    /// What is kept there: it lives as long as the request.
    #[inline]
    pub(super) fn get<'r>(self) -> Option<&'r Context> {
        // SAFETY: the slot lives as long as the request, and so does what `Room::keep` wrote.
        unsafe { self.0.read().as_ref() }
    }
}

impl Room {
    /// Memory of the main request of `request` for a context, and for what `rules` may need of keys
    /// and charges. `None`: there is none.
    #[inline]
    pub(super) fn new(request: *mut ngx_http_request_t, rules: &Active) -> Option<(Room, Keys)> {
        const {
            assert!(align_of::<Context>() == align_of::<Charge<'_, '_>>());
            assert!(align_of::<Context>() == align_of::<Key<'_>>());
            assert!(align_of::<Context>() <= nginx_sys::NGX_ALIGNMENT);
        };
        let (keys, charges) = (rules.rules.len(), rules.limit_count);
        // No overflow: there are so many rules and limits in memory.
        let size = size_of::<Key<'_>>().wrapping_mul(keys);
        let size = size.wrapping_add(size_of::<Charge<'_, '_>>().wrapping_mul(charges));
        let size = size.wrapping_add(size_of::<Context>());
        // SAFETY: a request has a main request (perhaps itself), and that a pool, whose memory is
        // aligned, and freed when the request ends. The keys follow the context, and the charges
        // the keys.
        unsafe {
            let memory = ngx_palloc((*(*request).main).pool, size);
            let context = NonNull::new(memory.cast::<Context>())?;
            let next = context.add(1).cast::<Key<'_>>();
            let room = Room {
                context,
                charges: next.add(keys).cast(),
                len: 0,
                capacity: charges,
            };
            let keys = Keys {
                next,
                left: keys,
                renamed: None,
            };
            Some((room, keys))
        }
    }

    /// Keeps a decision in `slot`, which is that of the same request: `make` is given the charges.
    #[inline]
    pub(super) fn keep(
        self,
        slot: ContextSlot,
        make: impl FnOnce(&'static [Charge<'static, 'static>]) -> Context,
    ) -> &'static Context {
        // SAFETY: the memory is the request's, which is the `'static`; `len` charges were written.
        // The slot lives as long.
        unsafe {
            let charges = core::slice::from_raw_parts(self.charges.as_ptr(), self.len);
            self.context.write(make(charges));
            slot.0.write(self.context.as_ptr());
            self.context.as_ref()
        }
    }
}

impl Keys {
    /// Keeps the name that `key` is counted under as long as `request`. `None`: no memory.
    pub(super) fn rename(
        &mut self,
        key: &'static [u8],
        name: &[u8],
        request: *mut ngx_http_request_t,
    ) -> Option<&'static [u8]> {
        // SAFETY: a request that has not ended has a main request (perhaps itself), and that a pool,
        // which is freed when the request ends, and whose memory is aligned. It is new, and as long as
        // what is written.
        unsafe {
            let pool = (*(*request).main).pool;
            let place = NonNull::new(ngx_palloc(pool, size_of::<Renamed>()).cast::<Renamed>())?;
            let bytes = NonNull::new(ngx_pnalloc(pool, name.len()).cast::<u8>())?;
            ptr::copy_nonoverlapping(name.as_ptr(), bytes.as_ptr(), name.len());
            let name = core::slice::from_raw_parts(bytes.as_ptr(), name.len());
            place.write(Renamed {
                name,
                key,
                next: self.renamed,
            });
            self.renamed = Some(place.as_ref());
            Some(name)
        }
    }

    /// The keys that are counted under other names.
    #[inline]
    pub(super) fn renamed(&self) -> Option<&'static Renamed> {
        self.renamed
    }

    /// Keeps a key as long as the request. `None` if there are more than rules.
    #[inline]
    pub(super) fn keep(&mut self, key: Key<'static>) -> Option<&'static Key<'static>> {
        self.left = self.left.checked_sub(1)?;
        let place = self.next;
        // SAFETY: within the memory that `Room::new` took for so many keys, which is the request's.
        unsafe {
            self.next = place.add(1);
            place.write(key);
            Some(place.as_ref())
        }
    }
}

impl Charges<'static, 'static> for Room {
    #[inline]
    fn push(&mut self, charge: Charge<'static, 'static>) {
        if self.len < self.capacity {
            // SAFETY: within the memory that `new` took.
            unsafe { self.charges.add(self.len).write(charge) };
            self.len = self.len.wrapping_add(1);
        }
    }

    #[inline]
    fn as_mut_slice(&mut self) -> &mut [Charge<'static, 'static>] {
        // SAFETY: so many charges were written, and nobody else has them.
        unsafe { core::slice::from_raw_parts_mut(self.charges.as_ptr(), self.len) }
    }
}

/// The decision on the main request of `request`, if there was one.
#[inline]
pub(super) fn of<'r>(request: *mut ngx_http_request_t) -> Option<&'r Context> {
    // SAFETY: a request that has not ended has the configuration of its cycle.
    let conf = Module::main_conf(unsafe { &*request })?;
    ContextSlot::of(request, conf.context_slot)?.get()
}
