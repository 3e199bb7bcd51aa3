//! One range, cut into blocks of one size, and the used blocks. Pure.
//!
//! Source of the behavior: `kubernetes/kubernetes` `pkg/controller/nodeipam/ipam/cidrset/cidr_set.go`. Unlike there, a
//! block that several holders cover is free only after the last of them releases it.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::RangeInclusive;

use ipnet::IpNet;

/// A range, and its used blocks.
#[derive(Debug, Clone)]
pub(super) struct CidrSet {
    range: IpNet,
    prefix: u8,
    blocks: u64,
    // One bit per block. Grows with the highest block that was ever used.
    bits: Vec<u64>,
    // Blocks with more than one holder, and the number of additional holders.
    shared: BTreeMap<u64, u32>,
    used: u64,
    // The start of the next search: freed blocks are reused as late as possible.
    next: u64,
    totals: Totals,
}

/// Changes of a set since it was created, in blocks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Totals {
    /// Blocks that became used.
    pub(super) allocations: u64,
    /// Blocks that became free.
    pub(super) releases: u64,
}

/// A free block, and the number of used blocks that the search skipped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Candidate {
    /// The block.
    pub(super) block: IpNet,
    /// Used blocks that were skipped.
    pub(super) tries: u64,
}

impl CidrSet {
    /// All blocks of `/prefix` in `range`, all free; `None` if such a block is larger than the range or smaller than an
    /// address.
    pub(super) fn new(range: IpNet, prefix: u8) -> Option<Self> {
        let spare = prefix.checked_sub(range.prefix_len())?;
        if prefix > range.max_prefix_len() {
            return None;
        }
        let blocks = 1_u64.checked_shl(spare.into())?;
        let range = range.trunc();
        let totals = Totals::default();
        Some(Self { range, prefix, blocks, bits: Vec::new(), shared: BTreeMap::new(), used: 0, next: 0, totals })
    }

    /// The whole range.
    pub(super) fn range(&self) -> IpNet {
        self.range
    }

    /// Prefix length of a block.
    pub(super) fn prefix(&self) -> u8 {
        self.prefix
    }

    /// The number of blocks.
    pub(super) fn blocks(&self) -> u64 {
        self.blocks
    }

    /// The number of used blocks.
    pub(super) fn used(&self) -> u64 {
        self.used
    }

    /// Counts since the creation of the set.
    pub(super) fn totals(&self) -> Totals {
        self.totals
    }

    /// The next free block; `None` if all are used.
    pub(super) fn candidate(&self) -> Option<Candidate> {
        if self.used >= self.blocks {
            return None;
        }
        let around = (self.next..self.blocks).chain(0..self.next);
        let (tries, index) = (0..).zip(around).find(|(_, index)| !self.is_used(*index))?;
        Some(Candidate { block: self.block(index)?, tries })
    }

    /// Marks the block of a [`Candidate`] as used; the next search begins after it.
    pub(super) fn take(&mut self, candidate: &Candidate) {
        self.occupy(&candidate.block);
        if let Some(span) = self.span(&candidate.block) {
            self.next = span.end().wrapping_add(1) % self.blocks;
        }
    }

    /// Adds a holder to every block that overlaps with `cidr`. Returns whether one of them was used already; `None` if
    /// `cidr` is outside of the range.
    pub(super) fn occupy(&mut self, cidr: &IpNet) -> Option<bool> {
        let mut overlaps = false;
        for index in self.span(cidr)? {
            if self.is_used(index) {
                *self.shared.entry(index).or_default() += 1;
                overlaps = true;
            } else {
                self.set(index, true);
                self.used += 1;
                self.totals.allocations += 1;
            }
        }
        Some(overlaps)
    }

    /// Reverts one [`CidrSet::occupy`] or [`CidrSet::take`] of the same `cidr`. Returns the number of blocks that
    /// became free.
    pub(super) fn release(&mut self, cidr: &IpNet) -> u64 {
        let mut freed = 0;
        for index in self.span(cidr).into_iter().flatten() {
            if let Some(more) = self.shared.get_mut(&index) {
                *more -= 1;
                if *more == 0 {
                    self.shared.remove(&index);
                }
            } else if self.is_used(index) {
                self.set(index, false);
                freed += 1;
            }
        }
        self.used = self.used.saturating_sub(freed);
        self.totals.releases += freed;
        freed
    }

    /// The blocks that overlap with `cidr`.
    fn span(&self, cidr: &IpNet) -> Option<RangeInclusive<u64>> {
        if cidr.addr().is_ipv6() != self.range.addr().is_ipv6() {
            return None;
        }
        let first = number(cidr.network()).max(number(self.range.network()));
        let last = number(cidr.broadcast()).min(number(self.range.broadcast()));
        let index = |address: u128| {
            let offset = address.checked_sub(number(self.range.network()))?;
            u64::try_from(offset.checked_shr(self.shift())?).ok()
        };
        if first > last { None } else { Some(index(first)?..=index(last)?) }
    }

    /// Bits of an address within its block.
    fn shift(&self) -> u32 {
        u32::from(self.range.max_prefix_len().saturating_sub(self.prefix))
    }

    fn block(&self, index: u64) -> Option<IpNet> {
        let offset = u128::from(index).checked_shl(self.shift())?;
        let address = number(self.range.network()).checked_add(offset)?;
        let address = match self.range {
            IpNet::V4(_) => IpAddr::from(Ipv4Addr::from(u32::try_from(address).ok()?)),
            IpNet::V6(_) => IpAddr::from(Ipv6Addr::from(address)),
        };
        IpNet::new(address, self.prefix).ok()
    }

    fn is_used(&self, index: u64) -> bool {
        let (word, bit) = place(index);
        self.bits.get(word).is_some_and(|word| word & bit != 0)
    }

    fn set(&mut self, index: u64, used: bool) {
        let (word, bit) = place(index);
        if used && self.bits.len() <= word {
            self.bits.resize(word + 1, 0);
        }
        if let Some(word) = self.bits.get_mut(word) {
            if used { *word |= bit } else { *word &= !bit }
        }
    }
}

fn place(index: u64) -> (usize, u64) {
    // Cannot fail: no machine has memory for so many words.
    (usize::try_from(index / 64).unwrap_or(usize::MAX - 1), 1 << (index % 64))
}

fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => u128::from(u32::from(address)),
        IpAddr::V6(address) => u128::from(address),
    }
}
