// SPDX-License-Identifier: Apache-2.0
#include "cache/page_pool.h"

#include <algorithm>

namespace anyattn::cache {

PagePool::PagePool(uint32_t num_pages, std::span<const uint32_t> blocks_per_page)
    : pages_(num_pages), free_pages_(num_pages), num_free_pages_(num_pages) {
  groups_.reserve(blocks_per_page.size());
  for (const uint32_t count : blocks_per_page) groups_.emplace_back(count, num_pages * count);
  for (uint32_t p = 0; p < num_pages; ++p) free_pages_.insert(p);
}

template <class Element>
void PagePool::push(std::vector<Element>& elements, List& list, uint32_t i) {
  elements[i].link = {list.newest, kNobody};
  (list.newest == kNobody ? list.oldest : elements[list.newest].link.next) = i;
  list.newest = i;
}

template <class Element>
void PagePool::unlink(std::vector<Element>& elements, List& list, uint32_t i) {
  const Link link = elements[i].link;
  (link.previous == kNobody ? list.oldest : elements[link.previous].link.next) = link.next;
  (link.next == kNobody ? list.newest : elements[link.next].link.previous) = link.previous;
  elements[i].link = {};
}

PagePlan PagePool::plan(std::span<const uint32_t> needs) {
  PagePlan plan{0, num_free_pages_ + idle_pages_};
  for (size_t g = 0; g < groups_.size(); ++g) {
    Group& group = groups_[g];
    const uint64_t missing = needs[g] > group.unheld ? needs[g] - group.unheld : 0;
    group.planned_pages = (missing + group.blocks_per_page - 1) / group.blocks_per_page;
    plan.wanted += group.planned_pages;
  }
  spare_pages_ = plan.fits() ? plan.available - plan.wanted : 0;
  return plan;
}

// Takes one whole page from what the plan allows this group.
bool PagePool::spend_page(Group& group) {
  uint64_t& source = group.planned_pages > 0 ? group.planned_pages : spare_pages_;
  if (source == 0) return false;
  --source;
  return true;
}

uint32_t PagePool::take(uint32_t g, uint32_t after) {
  Group& group = groups_[g];
  const uint32_t next = after + 1;  // kNoBlock wraps to 0, the natural first choice
  if (group.empty.contains(next)) return hold_empty(g, next);
  if (const uint32_t block = group.empty.first(); block != Bitmap::kEmpty) return hold_empty(g, block);

  // A cached block of an own page costs no page; but where the plan gave pages, all of those blocks will be needed anyway.
  const bool must_evict_own = num_free_pages_ == 0 && group.planned_pages == 0 && group.cached.oldest != kNobody;
  if (!must_evict_own && spend_page(group)) {
    uint32_t page = next / group.blocks_per_page;
    if (!free_pages_.contains(page)) page = free_pages_.first();
    if (page == Bitmap::kEmpty) page = idle_.oldest;
    claim(page, g);
    return hold_empty(g, page * group.blocks_per_page);
  }
  const uint32_t block = group.cached.oldest;
  if (block == kNobody) return kNoBlock;  // only without a plan that fits
  unlink(group.blocks, group.cached, block);
  evict(g, block);
  group.empty.insert(block);
  return hold_empty(g, block);
}

uint32_t PagePool::hold_empty(uint32_t g, uint32_t block) {
  Group& group = groups_[g];
  group.empty.erase(block);
  group.blocks[block].references = 1;
  --group.unheld;
  ++group.held;
  ++pages_[block / group.blocks_per_page].held;
  return block;
}

void PagePool::hold(uint32_t g, uint32_t block) {
  Group& group = groups_[g];
  Block& b = group.blocks[block];
  if (b.references++ > 0) return;
  const uint32_t page = block / group.blocks_per_page;
  if (pages_[page].held == 0) activate(page);
  unlink(group.blocks, group.cached, block);
  --group.unheld;
  ++group.held;
  ++group.held_findable;
  ++pages_[page].held;
}

void PagePool::drop(uint32_t g, uint32_t block) {
  Group& group = groups_[g];
  Block& b = group.blocks[block];
  if (--b.references > 0) return;
  --group.held;
  ++group.unheld;
  if (b.findable) {
    --group.held_findable;
    push(group.blocks, group.cached, block);
  } else {
    group.empty.insert(block);
  }
  const uint32_t page = block / group.blocks_per_page;
  if (--pages_[page].held == 0) deactivate(page);
}

void PagePool::publish(uint32_t g, uint32_t block, const ContentHash& content) {
  Group& group = groups_[g];
  Block& b = group.blocks[block];
  if (b.findable || group.index.find(content) != kNoBlock) return;
  b.content = content;
  b.findable = true;
  group.index.insert(content, block);
  ++group.held_findable;
  ++pages_[block / group.blocks_per_page].findable;
}

void PagePool::activate(uint32_t page) {
  Group& group = groups_[pages_[page].group];
  unlink(pages_, idle_, page);
  --idle_pages_;
  peak_active_pages_ = std::max(peak_active_pages_, ++active_pages_);
  group.unheld += group.blocks_per_page;
  for (uint32_t i = 0; i < group.blocks_per_page; ++i) {
    const uint32_t block = page * group.blocks_per_page + i;
    if (group.blocks[block].findable) {
      push(group.blocks, group.cached, block);
    } else {
      group.empty.insert(block);
    }
  }
}

void PagePool::deactivate(uint32_t page) {
  Group& group = groups_[pages_[page].group];
  --active_pages_;
  group.unheld -= group.blocks_per_page;
  for (uint32_t i = 0; i < group.blocks_per_page; ++i) {
    const uint32_t block = page * group.blocks_per_page + i;
    if (group.blocks[block].findable) {
      unlink(group.blocks, group.cached, block);
    } else {
      group.empty.erase(block);
    }
  }
  if (pages_[page].findable > 0) {
    push(pages_, idle_, page);
    ++idle_pages_;
  } else {
    pages_[page].group = kNobody;
    free_pages_.insert(page);
    ++num_free_pages_;
  }
}

void PagePool::claim(uint32_t page, uint32_t g) {
  if (const uint32_t owner = pages_[page].group; owner == kNobody) {
    free_pages_.erase(page);
    --num_free_pages_;
  } else {
    unlink(pages_, idle_, page);
    --idle_pages_;
    const uint32_t count = groups_[owner].blocks_per_page;
    for (uint32_t block = page * count; block < (page + 1) * count; ++block) {
      if (groups_[owner].blocks[block].findable) evict(owner, block);
    }
  }
  Group& group = groups_[g];
  pages_[page].group = g;
  peak_active_pages_ = std::max(peak_active_pages_, ++active_pages_);
  group.unheld += group.blocks_per_page;
  for (uint32_t i = 0; i < group.blocks_per_page; ++i) group.empty.insert(page * group.blocks_per_page + i);
}

void PagePool::evict(uint32_t g, uint32_t block) {
  Group& group = groups_[g];
  group.index.erase(group.blocks[block].content);
  group.blocks[block].findable = false;
  --pages_[block / group.blocks_per_page].findable;
  ++evicted_blocks_;
}

}  // namespace anyattn::cache
