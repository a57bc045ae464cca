// Gathers activations that lie on a device into the Grams of several streams, on that device. Does what
// stats/gram/collector.h does on the host, with the same rounds and panels; results are equal up to rounding.
// If not all sums fit on the device, the caller makes several passes over the tokens, each for a share of the
// sums. A finished share is copied to a Collector on the host, in ScaLAPACK's layout, while the next pass
// runs. The next pass waits for the copy when it has a panel to multiply and needs the memory.
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

/// Those sums of a collector that are on the device at a time.
struct DeviceShare {
  std::vector<std::size_t> streams;
  std::vector<Part> parts;
  GramSlice slice;  ///< of each Gram
};

/// T: see Collector.
template <class T>
class DeviceCollector {
 public:
  /// Holds no sums yet. `comm` joins the ranks of the grid and their devices; `values`: the type of the rows;
  /// `stripe`: the width of stripes, see DeviceGram. `grid` and `comm` must outlive the collector.
  DeviceCollector(const Grid& grid, const DeviceComm& comm, GramSpec spec, at::Device device,
                  at::ScalarType values, std::int64_t stripe = 0);

  /// Starts a share. It subtracts the provisional means that the host has, if any. The previous share, if
  /// any, starts to move to the host. Collective over the grid.
  void start_share(const DeviceShare& share);
  /// Copies to the device what the host has of the share that was just started. Collective over the grid.
  void upload();

  /// Returns room for `tokens` more rows of this rank: [tokens, D of the stream], to be filled before
  /// `end_round`. Valid until the next call for this stream and part, which must belong to the share. Local.
  at::Tensor add_rows(std::size_t stream, Part part, std::int64_t tokens);

  /// Ends a round in which all ranks together added `tokens` rows of `part`, which must belong to the share.
  /// Collective over the grid.
  void end_round(Part part, std::int64_t tokens);

  /// Returns the Grams of the last share by stream, without a copy to the host; none if the share has only
  /// some parts or a slice. Call `finish` afterwards: it returns Grams of no tokens for these streams.
  /// Collective over the grid.
  std::map<std::size_t, ResidentGrams> release_resident();

  /// Returns the Grams by stream. Collective over the grid.
  std::vector<StreamGrams> finish();

  /// Copies what has been gathered so far to the collector on the host, for saving, and returns it. Before
  /// the first share it returns a fresh collector, to be filled with what was saved. Called between rounds.
  /// Local.
  Collector<T>& copy_to_host();

 private:
  struct Waiting {
    at::Tensor rows;  // [room, D]
    std::int64_t tokens = 0;
  };
  struct Sums {  // see GramSums
    std::optional<DeviceGram> gram;
    at::Tensor sum;  // [D]
    std::int64_t tokens = 0;
  };
  struct Stream {
    DeviceExchange exchange;
    std::vector<double> shift;  // empty until the first panel
    at::Tensor device_shift;    // a copy on the device
    std::vector<Sums> sums;     // by part; those of the share have a Gram
    std::vector<Waiting> waiting;
  };

  /// A panel that is being exchanged while the previous one is multiplied.
  struct Pending {
    const Stream* stream;
    Sums* sums;
    DevicePanel panel;
  };

  /// A finished share that another thread copies to the host.
  struct Download {
    std::map<std::size_t, Stream> streams;
    std::future<void> done;
  };

  Collector<T>& host();
  Stream make_stream(std::size_t stream) const;
  void allocate_grams();
  void flush(std::size_t part);
  void flush_all();
  void end_share();
  void set_shift(Stream& stream, const std::vector<double>& shift);
  void add_panel(Stream& stream, std::size_t part, const at::Tensor& rows);
  void multiply();
  static void copy_sums(const Stream& from, const std::vector<Part>& parts, CollectedStream<T>& to);
  void copy_waiting(std::size_t stream);
  void finish_download();
  void clear_on_host(std::size_t stream);

  const Grid* grid_;
  const DeviceComm* comm_;
  GramSpec spec_;
  at::Device device_;
  at::ScalarType values_;
  std::int64_t panel_tokens_;
  std::int64_t stripe_;
  DeviceShare share_;
  std::map<std::size_t, Stream> streams_;     // of the share
  std::optional<Pending> pending_;            // within a flush
  std::vector<std::int64_t> waiting_tokens_;  // by part, of all ranks
  std::unique_ptr<Collector<T>> host_;        // null until it is needed
  Download download_;
};

}  // namespace headspan
