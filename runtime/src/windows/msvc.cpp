// What MSVC-built programs call where mingw's own function would not do: MSVC expects a constructor to return its object.
#include <aotriton/flash.h>

#include <new>

using namespace aotriton::v3::flash;

extern "C" void* aotforge_msvc_attn_fwd_params(void* at) { return new (at) attn_fwd_params; }
extern "C" void* aotforge_msvc_attn_bwd_params(void* at) { return new (at) attn_bwd_params; }
