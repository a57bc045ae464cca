#include "device/device_room.h"

#include <ATen/ATen.h>

namespace headspan {

bool have_room(const Comm& comm, at::Device device, std::int64_t bytes) {
  at::Tensor room;
  int fits = 1;
  try {
    room = at::empty({bytes}, at::dtype(at::kByte).device(device));
  } catch (const std::exception&) {  // c10::Error: out of memory has no type of its own
    fits = 0;
  }
  return comm.min(fits) != 0;
}

}  // namespace headspan
