import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention as attention

device = "cuda" if torch.cuda.is_available() else "cpu"
name = torch.cuda.get_device_name() if device == "cuda" else "no GPU"
q, k, v = (
    torch.randn(2, 8, 1000, 64, device=device, dtype=torch.float16, requires_grad=True) for _ in range(3)
)
exact = attention(q.double(), k.double(), v.double(), is_causal=True)
with sdpa_kernel([SDPBackend.FLASH_ATTENTION]):
    out = attention(q, k, v, is_causal=True)
out.sum().backward()
error = (out - exact).abs().max().item()
gradient = q.grad.float().abs().sum().item()  # a sum in fp16 would overflow
print(f"{device}, {name}: largest error {error:.2e}, gradient {gradient:.4g}")
assert error < 5e-3
