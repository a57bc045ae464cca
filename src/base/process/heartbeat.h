// Heartbeat: signs of life between processes, as UDP packets beside whatever else connects them. A process
// sends beats to one and hears those of another. It has no thread: it acts when it is called. It knows
// nothing of MPI.
//
// Beats tell a process that is stopped, or whose node is gone, from one that computes for hours: the latter
// still sends them, from a thread of its own. Packets may be lost and the network may refuse them; then
// nothing is heard.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include <netinet/in.h>

namespace headspan {

/// Where beats reach a process. Trivially copyable.
struct HeartbeatAddress {
  static constexpr std::size_t kMost = 8;
  std::uint16_t port = 0;                    ///< in network order; 0: there is no socket
  std::array<in_addr_t, kMost> addresses{};  ///< IPv4 in network order, of its interfaces; 0: none
  std::array<char, 64> host{};               ///< name of its node
};

class Heartbeat {
 public:
  /// Opens a socket that takes beats with this key, which the job's processes share and others do not know.
  explicit Heartbeat(std::uint64_t key);
  ~Heartbeat();
  Heartbeat(const Heartbeat&) = delete;
  Heartbeat& operator=(const Heartbeat&) = delete;

  const HeartbeatAddress& address() const { return address_; }

  /// Sends one beat; or, if it is the `last`, that there will be no more.
  void send(const HeartbeatAddress& to, bool last = false) const;

  /// What has come since the last call, without waiting.
  struct Heard {
    std::int64_t beats = 0;
    bool last = false;
  };
  Heard hear() const;

 private:
  std::uint64_t key_;
  HeartbeatAddress address_;
  int socket_;
};

}  // namespace headspan
