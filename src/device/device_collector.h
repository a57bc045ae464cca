// Gathers activations that lie on a device into the Grams of several streams, there: what
// stats/gram/collector.h does on the host, round by round and panel by panel the same, with the same results
// but for rounding. Where not all sums fit the device they are taken in several passes over the tokens, of
// which each has a share of them. What a share has gathered ends in a Collector on the host, in ScaLAPACK's
// layout; it goes there while the next pass runs, until that has a panel to multiply and needs the memory.
#pragma once

#include <future>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "device/device_exchange.h"
#include "device/resident_grams.h"
#include "stats/gram/collector.h"

namespace headspan {

/// Which of the sums of a collector lie on the device at a time.
struct DeviceShare {
  std::vector<std::size_t> streams;
  std::vector<Part> parts;
  GramPiece piece;  ///< of each of their Grams
};

/// T: as the Collector that this one stands for has it.
template <class T>
class DeviceCollector {
 public:
  /// As Collector. `comm` joins the ranks of the grid where they compute; `values`: the type of the rows.
  /// `stripe`: as DeviceGram has it. `grid` and `comm` must outlive the collector, which holds no sums yet.
  DeviceCollector(const Grid& grid, const DeviceComm& comm, const std::vector<std::int64_t>& columns,
                  const std::vector<std::int64_t>& blocks, Precision precision, bool heldout,
                  at::Device device, at::ScalarType values, std::int64_t stripe = 0);

  /// Sends the share that was begun before on its way to the host, if there was one, and begins with another,
  /// about the provisional means that the host has. Collective over the grid.
  void begin(const DeviceShare& share);
  /// Goes on from what the host has of the share that was just begun. Collective over the grid.
  void take();

  /// Room for `tokens` more rows of this rank: [tokens, columns[stream]], to be filled before `end_round`.
  /// Valid until the next call for this stream and part, which are of the share. Local.
  at::Tensor add_rows(std::size_t stream, Part part, std::int64_t tokens);

  /// As Collector's, for a part of the share. Collective over the grid.
  void end_round(Part part, std::int64_t tokens);

  /// Before `finish`, which then gives Grams of no tokens for these streams: those of which the last share
  /// has everything, by stream, without the way to the host. Collective over the grid.
  std::map<std::size_t, ResidentGrams> release_resident();

  /// The Grams, by stream. Collective over the grid.
  std::vector<StreamGrams> finish();

  /// Between rounds: what has been gathered so far, on the host, for saving it; or, before the first share,
  /// for putting there what was saved. Local.
  Collector<T>& on_host();

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
    DeviceExchange exchange;
    std::vector<double> shift;  // empty until the first panel
    at::Tensor device_shift;    // the same on the device
    std::vector<Sums> sums;     // by part; those of the share get a Gram
    std::vector<Waiting> waiting;
  };

  /// A panel that is exchanged while the one before is multiplied.
  struct Pending {
    const Stream* stream;
    Sums* sums;
    DevicePanel panel;
  };

  /// A share that goes to the host, in a thread of its own.
  struct Leaving {
    std::map<std::size_t, Stream> streams;
    std::future<void> copies;
  };

  Collector<T>& host();
  Stream make_stream(std::size_t stream) const;
  void open_share();
  void flush(std::size_t part);
  void flush_all();
  void end_share();
  void set_shift(Stream& stream, std::vector<double> shift);
  std::vector<double> mean_of(const at::Tensor& rows) const;
  void add_panel(Stream& stream, std::size_t part, const at::Tensor& rows);
  void multiply();
  static void copy_sums(const Stream& from, const std::vector<Part>& parts, CollectedStream<T>& to);
  void copy_waiting(std::size_t stream);
  void wait_for_copies();
  void forget_on_host(std::size_t stream);

  const Grid* grid_;
  const DeviceComm* comm_;
  std::vector<std::int64_t> columns_, blocks_;
  Precision precision_;
  at::Device device_;
  at::ScalarType values_;
  std::int64_t panel_tokens_;
  std::int64_t stripe_;
  DeviceShare share_;
  std::map<std::size_t, Stream> streams_;     // of the share
  std::optional<Pending> pending_;            // within a flush
  std::vector<std::int64_t> waiting_tokens_;  // by part, of all ranks
  std::unique_ptr<Collector<T>> host_;        // null: nothing has been there yet
  Leaving leaving_;
};

}  // namespace headspan
