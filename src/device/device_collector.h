// Gathers activations that lie on a device into the Grams of several streams at once, there: what
// stats/collector.h does on the host, round by round and panel by panel the same, with the same results but
// for rounding. Each Gram is copied to the host when it is finished, into ScaLAPACK's layout.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "device/device_exchange.h"
#include "device/device_gram.h"
#include "stats/collector.h"

namespace headspan {

/// T: as the Collector that this one stands for has it.
template <class T>
class DeviceCollector {
 public:
  /// As Collector. `comm` joins the ranks of the grid where they compute; `values`: the type of the rows.
  /// `stripe`: as DeviceGram has it. `grid` and `comm` must outlive the collector.
  DeviceCollector(const Grid& grid, const DeviceComm& comm, const std::vector<std::int64_t>& columns,
                  const std::vector<std::int64_t>& blocks, Precision precision, bool heldout,
                  at::Device device, at::ScalarType values, std::int64_t stripe = 0);

  /// Room for `tokens` more rows of this rank: [tokens, columns[stream]], to be filled before `end_round`.
  /// Valid until the next call for this stream and part. Local.
  at::Tensor add_rows(std::size_t stream, Part part, std::int64_t tokens);

  /// As Collector's. Collective over the grid.
  void end_round(Part part, std::int64_t tokens);

  /// The Grams, by stream; a stream's memory on the device is given back as soon as it is copied. Collective
  /// over the grid.
  std::vector<StreamGrams> finish();

  /// Between rounds: a Collector of the same state, on the host, for saving it. Local.
  std::unique_ptr<Collector<T>> on_host();
  /// Takes the state of a Collector of the same streams: a fresh one, into which something saved was read.
  /// Collective over the grid.
  void take(Collector<T>& host);

 private:
  struct Waiting {
    at::Tensor rows;  // [room, D]
    std::int64_t tokens = 0;
  };
  struct Sums {  // of one part, as GramSums
    std::optional<DeviceGram> gram;
    at::Tensor sum;  // [D]
    std::int64_t tokens = 0;
  };
  struct Stream {
    std::optional<DeviceExchange> exchange;
    std::vector<double> shift;  // empty until the first panel
    at::Tensor device_shift;    // the same on the device
    std::vector<Sums> sums;     // by part
    std::vector<Waiting> waiting;
  };

  void flush(std::size_t part);
  void set_shift(Stream& stream, std::vector<double> shift);
  std::vector<double> mean_of(const at::Tensor& rows) const;
  void add_panel(Stream& stream, std::size_t part, const at::Tensor& rows);
  std::unique_ptr<Collector<T>> to_host(bool release);

  const Grid* grid_;
  std::vector<std::int64_t> columns_, blocks_;
  Precision precision_;
  at::Device device_;
  at::ScalarType values_;
  std::int64_t panel_tokens_;
  std::vector<Stream> streams_;
  std::vector<std::int64_t> waiting_tokens_;  // by part, of all ranks
};

}  // namespace headspan
