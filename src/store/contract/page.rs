//! Positions in a reading of all counters of a store that is read section by section, each section
//! in an order of its own.

use super::strategy::{Batch, Count};

/// A position in a reading of all counters.
#[derive(Clone, Debug)]
pub struct PageStep<C> {
    /// An index into the sections: the windows, or parts of them.
    pub(crate) section: usize,
    /// The place in that section after which the page begins; by default, it is the section's first page.
    pub(crate) after: C,
    /// Approximate number of counters of the page.
    pub(crate) counters: usize,
}

impl<C: Default> Default for PageStep<C> {
    /// The first page is small: how long the keys are is not known yet.
    fn default() -> PageStep<C> {
        PageStep { section: 0, after: C::default(), counters: Batch::MAX_DIFFS / 5 }
    }
}

impl<C: Default> PageStep<C> {
    /// The step after this page, of which `last` is the place where it ends, unless the section ends with it; `None`
    /// after the last of all `sections`.
    pub(crate) fn next(
        &self,
        page: &[Count],
        last: Option<C>,
        sections: usize,
    ) -> Option<PageStep<C>> {
        let section = match last {
            Some(_) => self.section,
            None => self.section.saturating_add(1),
        };
        (section < sections).then(|| PageStep {
            section,
            after: last.unwrap_or_default(),
            counters: Batch::page_after(page).unwrap_or(self.counters),
        })
    }
}
