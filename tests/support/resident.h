// Grams of synthetic activations that stay on a device.
#pragma once

#include <algorithm>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "base/range.h"
#include "device/device_collector.h"
#include "support/synthetic.h"

namespace headspan {

/// Through a collector with stripes of a few columns, in two rounds of uneven shares.
inline ResidentGrams make_resident(const Grid& grid, const Activations& fit, const Activations* heldout,
                                   std::int64_t block, at::Device device) {
  const std::unique_ptr<DeviceComm> comm = make_device_comm(grid.comm(), std::nullopt);
  const std::int64_t columns = fit.columns;
  DeviceCollector<double> collector(grid, *comm, {{columns}, {block}, Precision::float64, heldout != nullptr},
                                    device, at::kDouble, 5);
  DeviceShare share{{0}, {Part::fit}, {}};
  if (heldout != nullptr) share.parts.push_back(Part::heldout);
  collector.start_share(share);
  for (const Part part : share.parts) {
    const Activations& z = part == Part::fit ? fit : *heldout;
    for (std::int64_t first = 0; first < z.tokens;) {
      const std::int64_t tokens = std::min<std::int64_t>(first == 0 ? 7 : z.tokens, z.tokens - first);
      const Range mine = dealt_tokens(tokens, grid.comm().size(), grid.comm().rank());
      collector.add_rows(0, part, mine.count)
          .copy_(at::from_blob(const_cast<double*>(z.values.data()) + (first + mine.first) * columns,
                               {mine.count, columns}, at::kDouble));
      collector.end_round(part, tokens);
      collector.copy_to_host();  // as where a state is saved
      first += tokens;
    }
  }
  std::map<std::size_t, ResidentGrams> resident = collector.release_resident();
  EXPECT_EQ(resident.size(), 1u);
  EXPECT_EQ(collector.finish().front().fit.tokens, 0);
  return std::move(resident.at(0));
}

}  // namespace headspan
