// Every index map against the definition, with blocks dealt out one by one, for all small axes.
#include <functional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/range.h"
#include "dist/matrix/block_cyclic.h"

namespace headspan {
namespace {

/// Calls `check` for every axis of up to 13 elements, with blocks of up to 14, up to 5 parts and every first
/// part.
void for_all_small_axes(const std::function<void(const BlockCyclic&)>& check) {
  for (std::int64_t size = 0; size <= 13; ++size)
    for (std::int64_t block = 1; block <= 14; ++block)
      for (int parts = 1; parts <= 5; ++parts)
        for (int first = 0; first < parts; ++first) {
          SCOPED_TRACE("size " + std::to_string(size) + ", block " + std::to_string(block) + ", parts " +
                       std::to_string(parts) + ", first " + std::to_string(first));
          check({size, block, parts, first});
          if (testing::Test::HasFailure()) return;
        }
}

/// Returns the global elements of each part in order: blocks are dealt like cards.
std::vector<std::vector<std::int64_t>> deal(const BlockCyclic& axis) {
  std::vector<std::vector<std::int64_t>> hands(static_cast<std::size_t>(axis.parts));
  int part = axis.first;
  for (std::int64_t i = 0; i < axis.size; ++i) {
    if (i > 0 && i % axis.block == 0) part = part + 1 == axis.parts ? 0 : part + 1;
    hands[static_cast<std::size_t>(part)].push_back(i);
  }
  return hands;
}

TEST(BlockCyclic, PlacesEveryElementWhereDealingPutsIt) {
  for_all_small_axes([](const BlockCyclic& axis) {
    const auto hands = deal(axis);

    for (int part = 0; part < axis.parts; ++part) {
      const auto& hand = hands[static_cast<std::size_t>(part)];
      ASSERT_EQ(axis.local_size(part), static_cast<std::int64_t>(hand.size()));
      for (std::size_t l = 0; l < hand.size(); ++l) {
        ASSERT_EQ(axis.owner(hand[l]), part);
        ASSERT_EQ(axis.local(hand[l]), static_cast<std::int64_t>(l));
        ASSERT_EQ(axis.global(part, static_cast<std::int64_t>(l)), hand[l]);
      }
    }
  });
}

TEST(BlockCyclic, CountsBlocks) {
  for_all_small_axes([](const BlockCyclic& axis) {
    std::int64_t blocks = 0, elements = 0;

    for (int part = 0; part < axis.parts; ++part)
      for (std::int64_t l = 0; l < axis.local_blocks(part); ++l) {
        const std::int64_t block = axis.global_block(part, l);
        ASSERT_EQ(axis.owner_of_block(block), part);
        elements += axis.block_size(block);
        ++blocks;
      }

    ASSERT_EQ(blocks, axis.blocks());
    ASSERT_EQ(elements, axis.size);
  });
}

TEST(BlockCyclic, CountsElementsBeforeAnElement) {
  for_all_small_axes([](const BlockCyclic& axis) {
    const auto hands = deal(axis);

    for (int part = 0; part < axis.parts; ++part)
      for (std::int64_t element = 0; element <= axis.size; ++element) {
        std::int64_t before = 0;
        for (const std::int64_t owned : hands[static_cast<std::size_t>(part)])
          before += owned < element ? 1 : 0;
        ASSERT_EQ(axis.local_before(part, element), before) << "part " << part << ", element " << element;
      }
  });
}

TEST(BlockCyclic, FindsTheFirstLocalBlockFromAGlobalOne) {
  for_all_small_axes([](const BlockCyclic& axis) {
    for (int part = 0; part < axis.parts; ++part)
      for (std::int64_t from = 0; from <= axis.blocks(); ++from) {
        std::int64_t expected = 0;
        while (axis.global_block(part, expected) < from) ++expected;
        ASSERT_EQ(axis.first_local_block_from(part, from), expected) << "part " << part << ", from " << from;
      }
  });
}

TEST(Range, SharesAreContiguousAndEven) {
  for (std::int64_t total = 0; total <= 17; ++total)
    for (int parts = 1; parts <= 7; ++parts) {
      std::int64_t next = 0;
      for (int part = 0; part < parts; ++part) {
        const Range slab = range_of(total, parts, part);
        ASSERT_EQ(slab.first, next);
        ASSERT_GE(slab.count, total / parts);
        ASSERT_LE(slab.count, (total + parts - 1) / parts);
        for (std::int64_t i = 0; i < slab.count; ++i)
          ASSERT_EQ(range_owner(total, parts, slab.first + i), part);
        next += slab.count;
      }
      ASSERT_EQ(next, total);
    }
}

}  // namespace
}  // namespace headspan
