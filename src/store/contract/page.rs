//! Positions in a traversal of all counters of a store. It goes through sections, each with an
//! order of its own.

use super::strategy::{Batch, Count};

/// A position in a traversal of all counters.
#[derive(Clone, Debug)]
pub struct PageStep<C> {
    /// Index of the section, which is a window or a part of one.
    pub(crate) section: usize,
    /// The place in the section after which the page begins. The default is the start of the
    /// section.
    pub(crate) after: C,
    /// Approximate number of counters of the page.
    pub(crate) counters: usize,
}

impl<C: Default> Default for PageStep<C> {
    /// The first page is small, since the length of the keys is unknown.
    fn default() -> PageStep<C> {
        PageStep { section: 0, after: C::default(), counters: Batch::MAX_DIFFS / 5 }
    }
}

impl<C: Default> PageStep<C> {
    /// Returns the step after this page. `last` is the place where the page ends; `None` at the end
    /// of the section. Returns `None` after the last section.
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
