"""Examples of command lines, shown by `./dev TASK --help` and on docs/tasks.md."""

EXAMPLES: dict[str, tuple[str, ...]] = {
    "build": (
        "--arch gfx908",
        "--arch MI100,gfx90a --profile quick --output /srv/releases",
        "--arch gfx908 --cache-from https://example.org/cache --cache-root root.json",
        "--arch gfx908 --only softmax",
    ),
    "cache.prune": ("--limit 5",),
    "cache.show": ("--cache-from https://example.org/cache --cache-root root.json",),
    "check": ("--release releases/dist/0.11.2b-r1 --only calls,layout",),
    "compat.explain": ("--pytorch 2.9", "--pytorch main --aotriton 0.11.2b"),
    "compat.which": ("--pytorch 2.9 --arch gfx908", "--pytorch main --arch MI100"),
    "completion": ("bash", "zsh", "fish"),
    "config.show": ("build --arch gfx908", "--json"),
    "cost": (
        "attn_fwd --arch gfx908 --shape seqlen_q=1024,seqlen_k=1024,heads_q=8",
        "attn_fwd --key dtype=fp16,width=64 --setting BLOCK_M=32 --setting BLOCK_M=64",
    ),
    "coverage": ("releases/dist/0.11.2b-r1", "releases/dist/0.11.2b-r1 --calls attention.log"),
    "debug": ("rms_norm --list", "attn_fwd --break attn_fwd.py:60"),
    "demo": ("--arch gfx908", "--release releases/dist/0.11.2b-r1"),
    "docs": ("--output /srv/www/docs",),
    "doctor": ("", "--purpose build,install"),
    "hardware.check": ("--arch gfx908 --only add", "--from https://example.org/aotriton --root root.json"),
    "images.cat": ("releases/dist/0.11.2b-r1 0a1b2c3d --output image",),
    "images.ls": ("releases/dist/0.11.2b-r1",),
    "install": (
        "--prefix /opt/aotriton --arch gfx908 --from https://example.org/aotriton --root root.json",
        "--pytorch-lib auto --arch native --from /mnt/aotriton --root root.json",
        "--prefix /opt/aotriton --uninstall",
    ),
    "plan": ("--arch gfx908 --only flash",),
    "release": (
        "--version 0.11.2b --arch gfx908 --key key.pem --to s3://BUCKET/PREFIX --keys ~/keys",
        "--version 0.11.2b --arch gfx908 --development --unsigned --executor local --no-windows",
    ),
    "release.dropin": (
        "--pytorch-lib auto --arch gfx908 --dry-run",
        "--pytorch-lib auto --undo",
    ),
    "release.keys": ("--create ~/aotforge-keys", "--keys ~/aotforge-keys --rotate timestamp"),
    "release.list": ("--from https://example.org/aotriton --root root.json",),
    "release.page": ("--url https://example.org/aotriton --docs",),
    "release.publish": ("releases/dist/finished/0.11.2b-r1 --to s3://BUCKET/PREFIX --keys ~/aotforge-keys",),
    "release.renew": ("--to s3://BUCKET/PREFIX --keys ~/aotforge-keys",),
    "release.reproduce": ("0.11.2b-r1",),
    "release.verify": ("releases/dist/finished/0.11.2b-r1 --key key.pub",),
    "release.yank": ('0.11.2b-r1 --to s3://BUCKET/PREFIX --reason "wrong results for bf16"',),
    "report": ("", "--output build.html"),
    "run": ("kernel.py",),
    "source.images": ("--arch gfx908 --output images",),
    "status": ("--count 3",),
    "test": ("--only tests/unit", "--only tests/unit/test_errors.py --jobs 1"),
    "tune": (
        "attn_fwd --arch gfx908 --key dtype=fp16,width=64 --budget 20m",
        "--arch gfx908 --device --budget 2h --write",
        "attn_fwd --scheduler tls://HOST:8786 --cache-to s3://BUCKET/cache",
    ),
    "verify": ("--arch gfx908 --only softmax", "--release releases/dist/0.11.2b-r1"),
    "wheel": ("--output dist",),
}
"""Arguments of typical calls by task."""


def example_lines(task: str) -> list[str]:
    """Complete command lines of a task."""
    return [f"./dev {task} {arguments}".rstrip() for arguments in EXAMPLES.get(task, ())]
