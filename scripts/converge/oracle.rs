//! The decisions of one limiter for all nodes on the same hits, and the nodes' difference from
//! them.

/// A hit that came, as its node saw it.
#[derive(Clone, Copy)]
pub(crate) struct Hit {
    /// The node's time, in milliseconds since 1970.
    pub(crate) millis: u64,
    pub(crate) cost: u64,
    pub(crate) is_admitted: bool,
}

/// A limit of a window, in milliseconds.
#[derive(Clone, Copy)]
pub(crate) struct Limit {
    pub(crate) hits: u64,
    pub(crate) window: u64,
    pub(crate) is_sliding: bool,
}

/// The admissions in a window.
#[derive(Clone, Copy, Default)]
pub(crate) struct Window {
    /// By the nodes, and by the one limiter.
    pub(crate) nodes: u64,
    pub(crate) central: u64,
    /// Refused by a node, although all nodes together had admitted less than the limit.
    pub(crate) refused_with_room: u64,
}

/// Judges the hits, in the order in which they came, in each of so many windows from `first` on.
pub(crate) fn judge(hits: &[Hit], limit: Limit, first: u64, windows: u64) -> Vec<Window> {
    let mut judged = vec![Window::default(); windows as usize];
    let (mut central, mut nodes) = (Counter::default(), Counter::default());
    for hit in hits {
        let is_central = central.has_room(hit, limit);
        let has_room = nodes.has_room(hit, limit);
        central.add(hit.cost * u64::from(is_central));
        nodes.add(hit.cost * u64::from(hit.is_admitted));
        // A hit after the end belongs to no window.
        let Some(window) = (hit.millis / limit.window)
            .checked_sub(first)
            .and_then(|number| judged.get_mut(number as usize))
        else {
            continue;
        };
        window.nodes += hit.cost * u64::from(hit.is_admitted);
        window.central += hit.cost * u64::from(is_central);
        window.refused_with_room += hit.cost * u64::from(has_room && !hit.is_admitted);
    }
    judged
}

/// The hits of a window and of the one before it.
#[derive(Default)]
struct Counter {
    number: u64,
    current: u64,
    previous: u64,
}

impl Counter {
    fn has_room(&mut self, hit: &Hit, limit: Limit) -> bool {
        let number = hit.millis / limit.window;
        if number != self.number {
            let is_next = number == self.number + 1;
            self.previous = if is_next { self.current } else { 0 };
            (self.number, self.current) = (number, 0);
        }
        let left = limit.window - hit.millis % limit.window;
        let previous = if limit.is_sliding { self.previous * left } else { 0 };
        (self.current + hit.cost) * limit.window + previous <= limit.hits * limit.window
    }

    fn add(&mut self, hits: u64) {
        self.current += hits;
    }
}
