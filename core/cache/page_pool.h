// SPDX-License-Identifier: Apache-2.0
// Who holds which block: pages that belong to one group at a time, reference counts, and blocks found again by content.
// Included by block_manager. Knows neither requests nor tokens nor memory.
//
// A page is free (of no group), active (a block of it is held) or idle (none is, some are findable). Free and idle pages can
// become any group's, so `plan` answers exactly: a group has the blocks of its active pages nobody holds, and whole pages.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "cache/bitmap.h"
#include "cache/content_hash.h"
#include "cache/flat_map.h"

namespace anyattn::cache {

inline constexpr uint32_t kNoBlock = UINT32_MAX;

// Pages that a set of needs takes, and those that can be had.
struct PagePlan {
  uint64_t wanted = 0;
  uint64_t available = 0;
  bool fits() const { return wanted <= available; }
};

class PagePool {
 public:
  PagePool(uint32_t num_pages, std::span<const uint32_t> blocks_per_page);

  // Can needs[g] more blocks of every group be held? If so, exactly that many `take` calls succeed, in any order, as long as
  // nothing else is called in between.
  PagePlan plan(std::span<const uint32_t> needs);
  // One block, held once, its old content forgotten; behind `after` where that is free (kNoBlock: anywhere).
  uint32_t take(uint32_t group, uint32_t after);

  uint32_t find(uint32_t group, const ContentHash& content) const { return groups_[group].index.find(content); }
  void hold(uint32_t group, uint32_t block);
  void drop(uint32_t group, uint32_t block);
  // Makes a held block findable; nothing happens where it is already, or where another block has that content.
  void publish(uint32_t group, uint32_t block, const ContentHash& content);

  uint32_t num_pages() const { return static_cast<uint32_t>(pages_.size()); }
  uint64_t active_pages() const { return active_pages_; }
  uint64_t peak_active_pages() const { return peak_active_pages_; }
  uint64_t idle_pages() const { return idle_pages_; }
  uint64_t evicted_blocks() const { return evicted_blocks_; }
  uint64_t held_blocks(uint32_t group) const { return groups_[group].held; }
  uint64_t cached_blocks(uint32_t group) const { return groups_[group].index.size() - groups_[group].held_findable; }
  uint32_t references(uint32_t group, uint32_t block) const { return groups_[group].blocks[block].references; }

 private:
  static constexpr uint32_t kNobody = UINT32_MAX;

  struct Link {
    uint32_t previous = kNobody;
    uint32_t next = kNobody;
  };
  // A list threaded through `link` members; oldest first.
  struct List {
    uint32_t oldest = kNobody;
    uint32_t newest = kNobody;
  };
  struct Block {
    ContentHash content;
    Link link;  // in its group's list of unheld findable blocks of active pages
    uint32_t references = 0;
    bool findable = false;
  };
  struct Page {
    Link link;  // in the list of idle pages
    uint32_t group = kNobody;
    uint32_t held = 0;
    uint32_t findable = 0;
  };
  struct Group {
    Group(uint32_t blocks_a_page, uint32_t num_blocks)
        : blocks_per_page(blocks_a_page), blocks(num_blocks), empty(num_blocks), index(num_blocks) {}
    uint32_t blocks_per_page;
    std::vector<Block> blocks;
    Bitmap empty;  // of active pages: not held, not findable
    List cached;   // of active pages: not held, findable
    FlatMap<ContentHash> index;
    uint64_t unheld = 0;  // of active pages: empty and cached
    uint64_t held = 0;
    uint64_t held_findable = 0;
    uint64_t planned_pages = 0;
  };

  template <class Element>
  static void push(std::vector<Element>& elements, List& list, uint32_t i);
  template <class Element>
  static void unlink(std::vector<Element>& elements, List& list, uint32_t i);

  void activate(uint32_t page);               // idle -> active
  void deactivate(uint32_t page);             // active without held blocks -> idle or free
  void claim(uint32_t page, uint32_t group);  // free or idle -> active and empty
  void evict(uint32_t group, uint32_t block);
  uint32_t hold_empty(uint32_t group, uint32_t block);
  bool spend_page(Group& group);

  std::vector<Page> pages_;
  std::vector<Group> groups_;
  Bitmap free_pages_;
  List idle_;
  uint64_t num_free_pages_;
  uint64_t idle_pages_ = 0;
  uint64_t active_pages_ = 0;
  uint64_t peak_active_pages_ = 0;
  uint64_t evicted_blocks_ = 0;
  uint64_t spare_pages_ = 0;  // that the last plan left over
};

}  // namespace anyattn::cache
