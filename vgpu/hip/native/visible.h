// Devices that a process sees, by ROCR_VISIBLE_DEVICES, HIP_VISIBLE_DEVICES and CUDA_VISIBLE_DEVICES.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace virtual_hip {

// Numbers of the visible ones of the devices with these UUIDs, in the order in which the process counts them.
std::vector<size_t> visible_devices(const std::vector<std::string>& uuids);

}  // namespace virtual_hip
