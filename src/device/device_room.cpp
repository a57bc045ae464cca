#include "device/device_room.h"

#include <ATen/ATen.h>

namespace headspan {

bool have_room(const Comm& comm, at::Device device, std::int64_t bytes) {
  at::Tensor room;
  int taken = 1;
  try {
    room = at::empty({bytes}, at::dtype(at::kByte).device(device));
  } catch (const std::exception&) {  // c10::Error of several kinds: too little memory is no type of its own
    taken = 0;
  }
  return comm.min(taken) != 0;
}

}  // namespace headspan
