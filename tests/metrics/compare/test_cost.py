"""GPU-hours of 10^9 tokens, and what they cost."""

import pytest

from fairmfu.metrics.compare import cost


def test_gpu_hours_are_a_billion_tokens_over_the_rate() -> None:
    """1e9 / 5,000 tokens/s are 200,000 s on one GPU, 55.6 hours; no rate has none."""
    assert cost.gpu_hours(5000.0) == pytest.approx(200_000 / 3600)
    assert cost.gpu_hours(None) is None
    assert cost.gpu_hours(0.0) is None


def test_money_is_hours_times_price_where_both_are_known() -> None:
    price = cost.price("$2.50")
    assert cost.cost_of_gpu_hours(4.0, price) == 10.0
    assert cost.cost_of_gpu_hours(0.0, price) == 0.0
    assert cost.cost_of_gpu_hours(None, price) is None
    assert cost.cost_of_gpu_hours(4.0, None) is None


@pytest.mark.parametrize(
    ("text", "amount", "currency"),
    [("2.50 EUR", 2.5, "EUR"), ("$ 3", 3.0, "$"), ("0.5", 0.5, ""), (" .5 USD/h ", 0.5, "USD/h")],
)
def test_a_price_is_an_amount_and_a_currency(text: str, amount: float, currency: str) -> None:
    assert cost.price(text) == cost.Price(amount, currency)


def test_each_accelerator_has_a_price() -> None:
    found = cost.prices(["A100=1.20", "H100=2.50 EUR", "3"])
    assert found is not None
    assert str(found.of("NVIDIA H100 SXM")) == "2.50 EUR"
    assert str(found.of("NVIDIA A100 SXM 80GB")) == "1.20"
    assert str(found.of("NVIDIA B200")) == "3.00"
    assert cost.prices([]) is None


def test_a_short_name_is_a_whole_word() -> None:
    found = cost.prices(["b200=4", "H100 PCIe=2", "H100=3"])
    assert found is not None
    assert found.of("NVIDIA GB200") is None
    assert str(found.of("NVIDIA H100 PCIe")) == "2.00"
    assert str(found.of("NVIDIA H100 SXM")) == "3.00"
    assert found.of(None) is None
