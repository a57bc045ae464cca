#include "base/process/heartbeat.h"

#include <cstring>

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/provenance.h"

namespace headspan {
namespace {

struct Beat {
  std::uint64_t key;
  std::uint64_t last;  ///< 1: there will be no more
};

/// Returns a socket that any interface of this node can reach, on a port that the system chooses; -1 if there
/// can be none.
int open_socket(std::uint16_t& port) {
  const int opened = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (opened < 0) return -1;
  sockaddr_in name{};
  name.sin_family = AF_INET;
  name.sin_addr.s_addr = htonl(INADDR_ANY);
  socklen_t size = sizeof name;
  auto* const any = reinterpret_cast<sockaddr*>(&name);
  if (bind(opened, any, size) == 0 && getsockname(opened, any, &size) == 0) {
    port = name.sin_port;
    return opened;
  }
  close(opened);
  return -1;
}

/// Puts in the IPv4 addresses of this node, loopback last.
void list_addresses(HeartbeatAddress& address) {
  ifaddrs* interfaces = nullptr;
  if (getifaddrs(&interfaces) != 0) return;
  std::size_t count = 0;
  for (const bool loopback : {false, true})
    for (const ifaddrs* i = interfaces; i != nullptr && count < HeartbeatAddress::kMost; i = i->ifa_next) {
      if (i->ifa_addr == nullptr || i->ifa_addr->sa_family != AF_INET) continue;
      const in_addr_t found = reinterpret_cast<const sockaddr_in*>(i->ifa_addr)->sin_addr.s_addr;
      if ((ntohl(found) >> 24 == IN_LOOPBACKNET) == loopback) address.addresses[count++] = found;
    }
  freeifaddrs(interfaces);
}

}  // namespace

Heartbeat::Heartbeat(std::uint64_t key) : key_(key), socket_(open_socket(address_.port)) {
  list_addresses(address_);
  hostname().copy(address_.host.data(), address_.host.size() - 1);
}

Heartbeat::~Heartbeat() {
  if (socket_ >= 0) close(socket_);
}

void Heartbeat::send(const HeartbeatAddress& to, bool last) const {
  if (socket_ < 0 || to.port == 0) return;
  const bool same_node = std::strcmp(to.host.data(), address_.host.data()) == 0;
  const Beat beat{key_, last ? std::uint64_t{1} : 0};
  for (const in_addr_t address : to.addresses) {
    if (address == 0 || (ntohl(address) >> 24 == IN_LOOPBACKNET && !same_node)) continue;
    sockaddr_in name{};
    name.sin_family = AF_INET;
    name.sin_port = to.port;
    name.sin_addr.s_addr = address;
    sendto(socket_, &beat, sizeof beat, MSG_DONTWAIT, reinterpret_cast<const sockaddr*>(&name), sizeof name);
  }
}

Heartbeat::Heard Heartbeat::hear() const {
  Heard heard;
  Beat beat{};
  while (socket_ >= 0 && recv(socket_, &beat, sizeof beat, MSG_DONTWAIT) == sizeof beat) {
    if (beat.key != key_) continue;
    ++heard.beats;
    heard.last = heard.last || beat.last != 0;
  }
  return heard;
}

}  // namespace headspan
